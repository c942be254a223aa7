"""Steps of training jobs whose sums take turns at switches, event by event.

steps.c, which lies beside this file, is compiled when it is first needed, and kept where the switch keeps its
programs (`softswitch.engine.build`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from controller.scheduling.errors import SchedulingError
from softswitch.engine.build import build_c
from softswitch.engine.pipeline import BuildFailed, NoCache, NoCompiler

SOURCE = Path(__file__).with_suffix(".c")
# a fused multiplication would round differently from the public simulator
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-shared", "-fPIC")


class Turns(IntEnum):
    """Which of the sums that want the same switches gets them; the others go by the hosts."""

    NEVER = 0
    """None: all sums go by the hosts."""
    FIRST_COME = 1
    """The first that finds all switches of its tree free."""
    GAIN = 2
    """MINA's: the first, unless another sum starts before this one ends and gains more.

    A gain is the time by which the step ends sooner, times hosts, per time for which the switches are held.
    """
    LEAST_GAIN = 3
    """MINA's inverted: the first, unless another one gains less."""
    GAINING = 4
    """The first whose step ends sooner for it."""


@dataclass(frozen=True, slots=True)
class Sum:
    """One sum of a step: when its gradients are there, and how long it takes."""

    start_s: float
    in_network_s: float
    by_hosts_s: float


class Profile(ctypes.Structure):
    """Times of a kind of job, see steps.c."""

    _fields_ = [
        ("sums", ctypes.c_int64),
        ("step_s", ctypes.c_double),
        *((name, ctypes.POINTER(ctypes.c_double)) for name in ("start_s", "in_network_s", "by_hosts_s")),
        *((name, ctypes.POINTER(ctypes.c_double)) for name in ("floor_s", "rest_s")),
    ]


class Job(ctypes.Structure):
    """A job that runs, see steps.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("profile", "hosts", "steps", "group", "rank", "parts")),
        *((name, ctypes.POINTER(ctypes.c_int32)) for name in ("tree", "next_tree")),
        *((name, ctypes.c_int64) for name in ("tree_size", "next_size")),
        *(
            (name, ctypes.c_int64)
            for name in ("changing", "step", "sum", "part", "running", "in_network", "done")
        ),
        *((name, ctypes.c_double) for name in ("start_s", "step_start_s", "until_s", "finish_s")),
    ]


class _Cluster(ctypes.Structure):
    _fields_ = [
        ("profiles", ctypes.POINTER(Profile)),
        ("jobs", ctypes.POINTER(ctypes.POINTER(Job))),
        ("count", ctypes.c_int64),
        ("used", ctypes.POINTER(ctypes.c_int32)),
        ("quota", ctypes.c_int64),
        ("policy", ctypes.c_int64),
        ("now_s", ctypes.c_double),
        ("heap", ctypes.POINTER(ctypes.c_int64)),
    ]


class Profiles:
    """The times of kinds of jobs, numbered from 0 in the order in which they are added."""

    def __init__(self) -> None:
        self._made: list[tuple[Profile, object]] = []
        self._steps: list[tuple[float, float]] = []

    def add(self, step_s: float, sums: Sequence[Sum]) -> int:
        """Add a kind of job, with its time to compute a step and its sums. Returns its number."""
        floor_s, rest_s = [0.0] * len(sums), [0.0] * len(sums)
        floor, rest = step_s, 0.0
        for at in range(len(sums) - 1, -1, -1):
            floor_s[at], rest_s[at] = floor, rest
            rest += sums[at].by_hosts_s
            floor = max(floor, sums[at].start_s + rest)
        columns = [
            [each.start_s for each in sums],
            [each.in_network_s for each in sums],
            [each.by_hosts_s for each in sums],
            floor_s,
            rest_s,
        ]
        held = [(ctypes.c_double * len(sums))(*column) for column in columns]
        self._made.append((Profile(len(sums), step_s, *held), held))
        self._steps.append(
            (
                _step_s(step_s, sums, [each.in_network_s for each in sums]),
                _step_s(step_s, sums, [each.by_hosts_s for each in sums]),
            )
        )
        return len(self._made) - 1

    def step_s(self, number: int, *, in_network: bool) -> float:
        """Return the time of a step whose sums all go in the network, or all by the hosts."""
        return self._steps[number][0 if in_network else 1]

    def array(self) -> ctypes.Array[Profile]:
        """Return all profiles, for C."""
        return (Profile * len(self._made))(*(profile for profile, _ in self._made))


def _step_s(step_s: float, sums: Sequence[Sum], took_s: Sequence[float]) -> float:
    end_s = 0.0
    for each, took in zip(sums, took_s, strict=True):
        end_s = max(end_s, each.start_s) + took
    return max(end_s, step_s)


class Steps:
    """Running jobs on shared switches.

    Args:
        profiles: Kinds of jobs.
        switches: Number of switches.
        turns: Which sums get the switches.
        quota: How many sums a switch can hold at a time.

    Raises SchedulingError where there is no C compiler.
    """

    def __init__(self, profiles: Profiles, switches: int, turns: Turns, *, quota: int = 1) -> None:
        self._run = library()
        self._profiles = profiles.array()
        self._used = (ctypes.c_int32 * max(1, switches))()
        self._cluster = _Cluster(self._profiles, None, 0, self._used, quota, turns, 0.0, None)
        self._trees: dict[int, list[object]] = {}
        self.jobs: list[Job] = []

    @property
    def now_s(self) -> float:
        """The time of the last event."""
        return float(self._cluster.now_s)

    def start(self, profile: int, hosts: int, *, steps: int = -1, parts: int = 1) -> Job:
        """Start a job now, without a tree; `steps` below 0: without end."""
        job = Job(profile=profile, hosts=hosts, steps=steps, group=-1, parts=parts, tree_size=-1)
        job.rank = len(self.jobs)
        job.start_s = job.step_start_s = self.now_s
        self.jobs.append(job)
        return job

    def set_tree(self, job: Job, tree: Sequence[int] | None) -> None:
        """Set the switches that a job sums at, once its sum there has ended; None: it has no tree."""
        switches = (ctypes.c_int32 * len(tree or ()))(*(tree or ()))
        size = -1 if tree is None else len(tree)
        # the one in use, the next, and one that is replaced before it was used
        self._trees[id(job)] = [*self._trees.get(id(job), [])[-2:], switches]
        if job.running and job.in_network:
            job.next_tree, job.next_size, job.changing = switches, size, 1
        else:
            job.tree, job.tree_size, job.changing = switches, size, 0

    def run(self, *, end_s: float = float("inf")) -> Job | None:
        """Run until a job ends, which is returned and forgotten, or until the first event after `end_s`."""
        count = len(self.jobs)
        pointers = (ctypes.POINTER(Job) * max(1, count))(*map(ctypes.pointer, self.jobs))
        heap = (ctypes.c_int64 * max(1, count))()
        self._cluster.jobs, self._cluster.count, self._cluster.heap = pointers, count, heap
        number = self._run(ctypes.byref(self._cluster), end_s)
        if number < 0:
            return None
        self._trees.pop(id(self.jobs[number]), None)
        return self.jobs.pop(number)


@cache
def library() -> Callable[..., int]:
    """Return the compiled function. Raises SchedulingError where there is no C compiler."""
    try:
        path = build_c(SOURCE.read_text(encoding="utf-8"), flags=FLAGS)
    except (NoCompiler, NoCache, BuildFailed) as error:
        raise SchedulingError(f"the steps of MINA's public simulator: {error}") from error
    function = ctypes.CDLL(str(path)).mina_run
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.POINTER(_Cluster), ctypes.c_double]
    run: Callable[..., int] = function
    return run
