"""Steps of training jobs whose sums take turns at switches, event by event.

steps.c, which lies beside this file, is compiled when it is first needed, and kept where the switch keeps its
programs (`softswitch.engine.build`).

Models that are trained, as MINA's simulator has them: the times of a step, and the sums of its gradients.

A model's gradients are summed in buckets, one after the other while the step goes on. The figures are those
of the public measurements (batches of four samples), each in one line: buckets between the first and the last
repeat a few sizes, and come evenly. `read` has the measurements themselves, from a clone of the repository.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Final

from controller.policies.scheduling.errors import SchedulingError
from softswitch.engine.build import build_c
from softswitch.engine.pipeline import BuildFailed, NoCache, NoCompiler


@dataclass(frozen=True, slots=True)
class Model:
    """A model: the time to compute a step, and when each bucket is there, with its bytes."""

    step_s: float
    buckets: Sequence[tuple[float, int]]

    def faster(self, ratio: float) -> Model:
        """Return the model on GPUs that are so many times as fast."""
        return Model(self.step_s / ratio, [(start_s / ratio, size) for start_s, size in self.buckets])


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast sums go.

    Attributes:
        by_hosts_bytes: Bytes of a bucket that hosts sum among themselves per second.
        ratio: How many times as fast switches are.
        latency_s: What every sum takes besides; sums of a job on one host take only that.
    """

    by_hosts_bytes: float = 12.5e9
    ratio: float = 2.0
    latency_s: float = 50e-6

    def sum_of(self, start_s: float, size: int, *, alone: bool) -> Sum:
        """Return the times of the sum of a bucket."""
        fast_s, slow_s = size / (self.by_hosts_bytes * self.ratio), size / self.by_hosts_bytes
        if alone:
            fast_s = slow_s = 0.0
        return Sum(start_s, self.latency_s + fast_s, self.latency_s + slow_s)


def _model(
    step_ms: float,
    first: tuple[float, int],
    middle: tuple[int, float, float],
    sizes: Sequence[int],
    last: tuple[float, int],
) -> Model:
    """Return a model; times are in ms, and the middle is a number of buckets and the times of its ends."""
    count, begin_ms, end_ms = middle
    gap_ms = (end_ms - begin_ms) / (count - 1)
    between = [(begin_ms + at * gap_ms, sizes[at % len(sizes)]) for at in range(count)]
    return Model(step_ms / 1e3, [(start_ms / 1e3, size) for start_ms, size in (first, *between, last)])


BASE: Final = (28_351_488,)
LARGE: Final = (33_591_296, 29_396_992, 37_781_504)
MODELS: Final[Mapping[str, Model]] = {
    "opt-125m": _model(90.515, (41.55, 9_446_400), (11, 44.8, 76.8), BASE, (80.067, 179_644_416)),
    "opt-350m": _model(219.255, (75.78, 2_097_152), (36, 78.42, 193.67), LARGE, (194.805, 117_649_408)),
    "opt-1.3b": _model(
        761.735,
        (252.86, 67_133_440),
        (95, 299.9, 710.16),
        (67_141_632, 33_587_200, 33_570_816, 67_133_440),
        (713.203, 428_638_208),
    ),
    "bert-base": _model(80.706, (33.0, 2_490_600), (12, 36.12, 70.67), BASE, (71.515, 95_348_736)),
    "bert-large": _model(221.842, (80.23, 4_328_680), (36, 82.89, 196.43), LARGE, (197.641, 131_330_048)),
    "vit-base": _model(57.369, (14.41, 3_076_000), (12, 17.12, 45.11), BASE, (46.086, 2_976_768)),
    "vit-large": _model(141.54, (40.06, 4_100_000), (36, 41.83, 117.91), LARGE, (118.688, 8_167_424)),
}
"""In the order in which the public simulator draws them."""

SIZES: Final = (1, 2, 4, 8, 16, 32, 48, 64, 128)
"""Numbers of hosts of jobs."""
MIXES: Final[Mapping[str, Sequence[int]]] = {
    "all sizes": (10910, 9719, 16374, 23311, 23936, 13268, 2089, 329, 61),
    "many on one host": (44237, 14757, 18831, 15689, 5929, 550, 4),
    "from two hosts": (36941, 28960, 24127, 9117, 846, 6),
    "from eight hosts": (26464, 67247, 6241, 45),
}
"""How often each number of hosts is drawn; the last mixes leave out the smallest ones.

Numbers 0, 2, 6 and 9 of the ten of the public simulator, of which 1 and 5 are the same.
"""
FROM: Final[Mapping[str, int]] = {"from two hosts": 1, "from eight hosts": 3}
NUMBERS: Final[Mapping[str, int]] = {
    "all sizes": 0,
    "many on one host": 2,
    "from two hosts": 6,
    "from eight hosts": 9,
}


def sizes_of(mix: str) -> Sequence[int]:
    """Return the numbers of hosts that a mix draws from."""
    start = FROM.get(mix, 0)
    return SIZES[start : start + len(MIXES[mix])]


def read(folder: Path) -> dict[str, Model]:
    """Return the measured models from the folder ``traces`` of a clone of the public simulator."""
    models = {}
    for name in MODELS:
        found = json.loads((folder / f"{name}-4.json").read_text(encoding="utf-8"))
        buckets = [(float(each["start"]), int(each["size"])) for each in found["allreduces"]]
        models[name] = Model(float(found["duration"]), buckets)
    return models


class Kinds:
    """The profiles of models at given rates, on one host and on several."""

    def __init__(self, models: Sequence[Model], rates: Rates) -> None:
        self.profiles = Profiles()
        for model in models:
            for alone in (False, True):
                sums = [rates.sum_of(start_s, size, alone=alone) for start_s, size in model.buckets]
                self.profiles.add(model.step_s, sums)

    def profile(self, model: int, hosts: int) -> int:
        """Return the number of the profile of a model on so many hosts."""
        return 2 * model + (hosts == 1)

    def step_s(self, model: int, hosts: int, *, in_network: bool) -> float:
        """Return the time of a step with all sums in switches, or all by the hosts."""
        return self.profiles.step_s(self.profile(model, hosts), in_network=in_network)


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
        *((name, ctypes.c_int64) for name in ("profile", "hosts", "steps", "group", "rank")),
        *((name, ctypes.POINTER(ctypes.c_int32)) for name in ("tree", "next_tree")),
        *((name, ctypes.c_int64) for name in ("tree_size", "next_size")),
        *((name, ctypes.c_int64) for name in ("changing", "step", "sum", "running", "in_network", "done")),
        *((name, ctypes.c_double) for name in ("start_s", "step_start_s", "until_s", "finish_s")),
    ]


class _Cluster(ctypes.Structure):
    _fields_ = [
        ("profiles", ctypes.POINTER(Profile)),
        ("jobs", ctypes.POINTER(ctypes.POINTER(Job))),
        ("count", ctypes.c_int64),
        ("used", ctypes.POINTER(ctypes.c_int32)),
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

    Raises SchedulingError where there is no C compiler.
    """

    def __init__(self, profiles: Profiles, switches: int, turns: Turns) -> None:
        self._run = library()
        self._profiles = profiles.array()
        self._used = (ctypes.c_int32 * max(1, switches))()
        self._cluster = _Cluster(self._profiles, None, 0, self._used, turns, 0.0, None)
        self._trees: dict[int, list[object]] = {}
        self.jobs: list[Job] = []

    @property
    def now_s(self) -> float:
        """The time of the last event."""
        return float(self._cluster.now_s)

    def start(self, profile: int, hosts: int, *, steps: int = -1) -> Job:
        """Start a job now, without a tree; `steps` below 0: without end."""
        job = Job(profile=profile, hosts=hosts, steps=steps, group=-1, tree_size=-1)
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
