"""Steps of training jobs whose sums take turns at switches, event by event.

Each job goes through steps; a step has sums that start no earlier than their gradients are there, one after
the other. A sum goes through the switches of the job's tree if the policy allows it and these are free,
else by the hosts alone.

The trained models of MINA's simulator: the times of a step, and the sums of its gradients.

A model's gradients are summed in buckets, one after the other while the step goes on. The figures summarise
the public measurements (batches of four samples), each in one line: buckets between the first and the last
repeat a few sizes, at even times. `read` returns the measurements themselves, from a clone of the repository.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

from controller.vocabulary.lists import by_key


@dataclass(frozen=True, slots=True)
class Model:
    """A model: the time to compute a step, and the time and the bytes of each bucket."""

    step_s: float
    buckets: Sequence[tuple[float, int]]

    def faster(self, ratio: float) -> Model:
        """Return the model on GPUs that are faster by this factor."""
        return Model(self.step_s / ratio, [(start_s / ratio, size) for start_s, size in self.buckets])


@dataclass(frozen=True, slots=True)
class Rates:
    """Speed of sums.

    Attributes:
        by_hosts_bytes: Bytes of a bucket that hosts sum among themselves per second.
        ratio: Speed of switches relative to hosts.
        latency_s: Additional time of every sum; sums of a job on one host take only this.
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
"""Weight of each number of hosts in the draws; the last mixes leave out the smallest ones.

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
        """Return the number of the profile of a model on this number of hosts."""
        return 2 * model + (hosts == 1)

    def step_s(self, model: int, hosts: int, *, in_network: bool) -> float:
        """Return the time of a step with all sums in switches, or all by the hosts."""
        return self.profiles.step_s(self.profile(model, hosts), in_network=in_network)


class Turns(Enum):
    """Choice of the sum that gets switches which several need; the others go by the hosts."""

    NEVER = auto()
    """None: all sums go by the hosts."""
    FIRST_COME = auto()
    """The first sum that finds all switches of its tree free."""
    GAIN = auto()
    """MINA's: the first, unless another sum starts before this one ends and gains more.

    A gain is the time by which the step ends sooner, times hosts, per time for which the switches are held.
    """


@dataclass(frozen=True, slots=True)
class Sum:
    """One sum of a step: the time at which its gradients are ready, and its duration."""

    start_s: float
    in_network_s: float
    by_hosts_s: float


class Profile(NamedTuple):
    """Times of a kind of job: of a step's computation, and of each of its sums.

    The end of a step is a function of the end of one of its sums, if all later ones go by the hosts:
    max(floor_s, end + rest_s), both since the step began.
    """

    step_s: float
    start_s: Sequence[float]
    in_network_s: Sequence[float]
    by_hosts_s: Sequence[float]
    floor_s: Sequence[float]
    rest_s: Sequence[float]


@dataclass(slots=True)
class Job:
    """A job that runs; `steps` below 0: without end.

    Attributes:
        rank: Of events at the same time, lower ranks come first.
        group: Jobs of a group never use switches at the same time; below 0: no group.
        tree: Numbers of switches; it changes to `next_tree` when a sum there has ended. None: no tree.
    """

    profile: Profile
    hosts: int
    steps: int
    rank: int
    start_s: float
    step_start_s: float
    group: int = -1
    tree: tuple[int, ...] | None = None
    next_tree: tuple[int, ...] | None = None
    changing: bool = False
    running: bool = False
    in_network: bool = False
    step: int = 0
    sum: int = 0
    until_s: float = 0.0
    finish_s: float = 0.0


class Profiles:
    """The times of kinds of jobs, numbered from 0 in the order in which they are added."""

    def __init__(self) -> None:
        self.made: list[Profile] = []
        self._steps: list[tuple[float, float]] = []

    def add(self, step_s: float, sums: Sequence[Sum]) -> int:
        """Add a kind of job, with its time to compute a step and its sums. Returns its number."""
        floor_s, rest_s = [0.0] * len(sums), [0.0] * len(sums)
        floor, rest = step_s, 0.0
        for at in range(len(sums) - 1, -1, -1):
            floor_s[at], rest_s[at] = floor, rest
            rest += sums[at].by_hosts_s
            floor = max(floor, sums[at].start_s + rest)
        start_s = [each.start_s for each in sums]
        fast_s, slow_s = [each.in_network_s for each in sums], [each.by_hosts_s for each in sums]
        self.made.append(Profile(step_s, start_s, fast_s, slow_s, floor_s, rest_s))
        self._steps.append((_step_s(step_s, sums, fast_s), _step_s(step_s, sums, slow_s)))
        return len(self.made) - 1

    def step_s(self, number: int, *, in_network: bool) -> float:
        """Return the time of a step whose sums all go in the network, or all by the hosts."""
        return self._steps[number][0 if in_network else 1]


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
        turns: Decides which sums get the switches.
    """

    def __init__(self, profiles: Profiles, switches: int, turns: Turns) -> None:
        self._profiles, self._turns = profiles, turns
        self._used = [0] * switches
        self.now_s = 0.0
        """The time of the last event."""
        self.jobs: list[Job] = []

    def start(self, profile: int, hosts: int, *, steps: int = -1) -> Job:
        """Start a job now, without a tree; `steps` below 0: without end."""
        job = Job(self._profiles.made[profile], hosts, steps, len(self.jobs), self.now_s, self.now_s)
        self.jobs.append(job)
        return job

    def set_tree(self, job: Job, tree: Sequence[int] | None) -> None:
        """Set the switches that a job sums at, once its sum there has ended; None: it has no tree."""
        switches = None if tree is None else tuple(tree)
        job.changing = job.running and job.in_network
        if job.changing:
            job.next_tree = switches
        else:
            job.tree = switches

    def run(self, *, end_s: float = math.inf) -> Job | None:
        """Run until a job ends, which is returned and forgotten, or until the first event after `end_s`."""
        groups = by_key((job.group, job) for job in self.jobs)
        heap = [(self._due_s(job), job.rank, at) for at, job in enumerate(self.jobs)]
        heapq.heapify(heap)
        while heap and self.now_s <= end_s:
            self.now_s, _, at = heap[0]
            job = self.jobs[at]
            if self._happen(job, groups[job.group] if job.group >= 0 else ()):
                return self.jobs.pop(at)
            heapq.heapreplace(heap, (self._due_s(job), job.rank, at))
        return None

    def _due_s(self, job: Job) -> float:
        """Return when the job's next event is due."""
        if job.running:
            return job.until_s
        profile = job.profile
        wait_s = profile.start_s[job.sum] if job.sum < len(profile.start_s) else profile.step_s
        return max(self.now_s, job.step_start_s + wait_s)

    def _happen(self, job: Job, beside: Sequence[Job]) -> bool:
        """Process the job's due event, and its group's; return whether the job has ended."""
        profile = job.profile
        if job.running:
            job.running = False
            job.sum += 1
            if job.in_network:
                self._hold(job, -1)
            if job.changing:
                job.tree, job.changing = job.next_tree, False
        elif job.sum >= len(profile.start_s):
            job.sum, job.step_start_s = 0, self.now_s
            job.step += 1
            job.finish_s = self.now_s
            return job.step == job.steps
        else:
            job.in_network = self._may_use_switches(job, beside)
            job.running = True
            job.until_s = (
                self.now_s + (profile.in_network_s if job.in_network else profile.by_hosts_s)[job.sum]
            )
            if job.in_network:
                self._hold(job, 1)
        return False

    def _hold(self, job: Job, by: int) -> None:
        for switch in job.tree or ():
            self._used[switch] += by

    def _may_use_switches(self, job: Job, beside: Sequence[Job]) -> bool:
        if self._turns is Turns.NEVER or job.tree is None:
            return False
        if any(other.running and other.in_network for other in beside):
            return False
        if any(self._used[switch] for switch in job.tree):
            return False
        if self._turns is Turns.FIRST_COME:
            return True
        own = self._gain(job, self.now_s, job.step_start_s, job.sum)
        end_s = self.now_s + job.profile.in_network_s[job.sum]
        for other in beside:
            following = None if other is job else self._next_sum(other)
            if following and following[0] < end_s and self._gain(other, *following) > own:
                return False
        return True

    def _next_sum(self, job: Job) -> tuple[float, float, int] | None:
        """Return the next sum of which a decision will be made: its start, its step's, and its number."""
        profile, number, step_start_s = job.profile, job.sum + job.running, job.step_start_s
        now_s = job.until_s if job.running else self.now_s
        if number >= len(profile.start_s):
            if 0 <= job.steps <= job.step + 1:
                return None
            number, now_s = 0, max(now_s, step_start_s + profile.step_s)
            step_start_s = now_s
        return max(now_s, step_start_s + profile.start_s[number]), step_start_s, number

    def _gain(self, job: Job, start_s: float, step_start_s: float, number: int) -> float:
        """Return the gain of this sum alone in the network: time saved, by hosts and time held."""
        profile = job.profile
        fast_s, slow_s = start_s + profile.in_network_s[number], start_s + profile.by_hosts_s[number]
        floor_s, rest_s = step_start_s + profile.floor_s[number], profile.rest_s[number]
        saved_s = max(floor_s, slow_s + rest_s) - max(floor_s, fast_s + rest_s)
        return saved_s * job.hosts / (fast_s - self.now_s)
