"""Which two jobs may share their GPUs: lazy packing with a dynamic strategy (Lucid, 3.3).

The non-intrusive profiler: which job is profiled next, for how long, on how many nodes (Lucid, 3.2).

Free GPUs of a cluster whose nodes are divided between the profiler and the rest.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.usage import Size, Usage
from controller.policies.scheduling.policy import JobState
from controller.vocabulary import Cluster


class Sharing(Enum):
    """The GPU sharing capacity (GSS): the limit on the sum of two jobs' sharing scores."""

    DEFAULT = 2
    APATHETIC = 1
    OFF = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """Properties of a job that the binder uses.

    `expected_s` is how long it is expected to run from now on; `unstable` says that its usage varies too
    much to rely on; `alone` that it must not share for another reason, such as having been evicted once.
    """

    gpus: int
    size: Size
    usage: Usage
    expected_s: float
    unstable: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True)
class BinderRules:
    """The binder's settings.

    Attributes:
        gpu_memory_mb: Memory of a GPU: two jobs have to fit.
        node_gpus: GPUs of a server: larger jobs are distributed and do not share.
        patience: A job joins only a partner that is expected to run for at least its own time divided by
            this, so that it does not leave its partner's GPUs blocked for long once that has ended.
        unstable_at: Coefficient of variation of the GPU utilisation from which a job counts as unstable.
    """

    gpu_memory_mb: float
    node_gpus: int
    patience: float = 2.0
    unstable_at: float = 0.5

    def __post_init__(self) -> None:
        values = self.gpu_memory_mb, self.node_gpus, self.patience, self.unstable_at
        if not all(math.isfinite(v) and v > 0 for v in values):
            raise BadSpec(f"{self}: all of these have to be positive")


class Refusal(Enum):
    """Reason for which a job may not join another one."""

    OFF = "sharing is off"
    GPUS = "they ask for different numbers of GPUs"
    DISTRIBUTED = "their GPUs are on more than one server"
    UNSTABLE = "the usage of one of them is unstable"
    ALONE = "one of them has to be alone"
    MEMORY = "their memory does not fit on a GPU"
    SCORE = "their sharing scores add up to more than the capacity"
    TIME = "the newcomer is expected to stay for much longer"


def refusal(newcomer: Candidate, partner: Candidate, sharing: Sharing, rules: BinderRules) -> Refusal | None:
    """Return the first reason why a job may not join a partner that runs alone; None: it may.

    Args:
        newcomer: The job that is to start.
        partner: The running job.
        sharing: The GPU sharing capacity.
        rules: The binder's settings.
    """
    if sharing.value is None:
        return Refusal.OFF
    if newcomer.gpus != partner.gpus:
        return Refusal.GPUS
    if newcomer.gpus > rules.node_gpus:
        return Refusal.DISTRIBUTED
    if newcomer.unstable or partner.unstable:
        return Refusal.UNSTABLE
    if newcomer.alone or partner.alone:
        return Refusal.ALONE
    if newcomer.usage.memory_mb + partner.usage.memory_mb >= rules.gpu_memory_mb:
        return Refusal.MEMORY
    if newcomer.size + partner.size > sharing.value:
        return Refusal.SCORE
    if newcomer.expected_s > partner.expected_s * rules.patience:
        return Refusal.TIME
    return None


def choose(
    newcomer: Candidate, partners: Sequence[Candidate], sharing: Sharing, rules: BinderRules
) -> int | None:
    """Return the position of the best partner; None if there is none.

    The best has the lowest score, then the longest expected run time, then the first position.

    Args:
        newcomer: The job that is to start.
        partners: The running jobs that it might join.
        sharing: The GPU sharing capacity.
        rules: The binder's settings.
    """
    best: tuple[int, float, int] | None = None
    for position, partner in enumerate(partners):
        if refusal(newcomer, partner, sharing, rules) is None:
            rank = (int(partner.size), -partner.expected_s, position)
            if best is None or rank < best:
                best = rank
    return None if best is None else best[2]


def strategy(*, now: float, forecast: Sequence[float], idle: float, low: float, very_low: float) -> Sharing:
    """Choose how much sharing pays (dynamic strategy).

    While few jobs arrive and few are forecast, slowing any of them down does not pay. Sharing is reduced only
    if the forecast does not rise above the threshold: further jobs would have to wait.

    Args:
        now: Jobs submitted lately, in the unit of the forecast.
        forecast: Jobs expected in the next intervals.
        idle: Fraction of idle GPUs.
        low: Up to this many jobs, apathetic sharing is enough.
        very_low: Up to this many jobs, and while GPUs are idle, no sharing is needed.
    """
    if not 0 <= very_low <= low or not 0 <= idle <= 1:
        raise BadSpec(
            f"thresholds {very_low} and {low}, {idle} idle; all from 0, in order, and idle at most 1"
        )
    most = max([now, *forecast])
    if most <= very_low and idle > 0:
        return Sharing.OFF
    return Sharing.APATHETIC if most <= low else Sharing.DEFAULT


@dataclass(frozen=True, slots=True)
class ProfilerRules:
    """The profiler's settings.

    Attributes:
        nodes: Servers set aside for profiling.
        limit_s: Longest profiling time of a job. A job that ends before is done, any other one starts
            again.
        max_gpus: Jobs with more GPUs are not profiled.
        lent_nodes: Servers that the rest of the cluster lends in a burst.
        grow_at: Jobs in the profiler's queue from which it grows and shortens the profiling time.
        shrink_at: Jobs in the queue below which it returns servers.
        burst_limit_s: `limit_s` in a burst.
        busy_gpus: Forecast of GPUs asked for in the next intervals above which it keeps lent servers.
    """

    nodes: int
    limit_s: float
    max_gpus: int
    lent_nodes: int = 0
    grow_at: int = 10
    shrink_at: int = 5
    burst_limit_s: float | None = None
    busy_gpus: float = math.inf

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.max_gpus < 1 or self.lent_nodes < 0 or not self.limit_s > 0:
            raise BadSpec(
                f"a profiler of {self.nodes} nodes, {self.limit_s} s and {self.max_gpus} GPUs at most,"
                f" {self.lent_nodes} nodes lent; it needs one node, some time and one GPU"
            )
        if not 0 <= self.shrink_at <= self.grow_at:
            raise BadSpec(f"a profiler that shrinks at {self.shrink_at} jobs and grows at {self.grow_at}")
        if self.burst_limit_s is not None and not 0 < self.burst_limit_s <= self.limit_s:
            raise BadSpec(f"a profiling time of {self.burst_limit_s} s in bursts and {self.limit_s} s else")

    def time_s(self, queue: int) -> float:
        """Return the profiling time in seconds of a job that starts now (time-aware scaling)."""
        hurried = self.burst_limit_s is not None and queue > self.grow_at
        return self.burst_limit_s if hurried and self.burst_limit_s is not None else self.limit_s

    def wanted_nodes(self, queue: int, now: int, forecast_gpus: Sequence[float] = ()) -> int:
        """Return how many nodes the profiler should have (time-aware scaling), one more or fewer at a time.

        It borrows while more than `grow_at` jobs queue, and returns nodes when fewer than `shrink_at` do and
        the forecast does not predict the next burst.
        """
        if queue > self.grow_at and now < self.nodes + self.lent_nodes:
            return now + 1
        expected = sum(forecast_gpus) / len(forecast_gpus) if forecast_gpus else 0.0
        if queue < self.shrink_at and now > self.nodes and expected <= self.busy_gpus:
            return now - 1
        return now


class ProfileQueue:
    """Jobs that wait for profiling, least GPUs first (space-aware profiling, algorithm 1).

    Profiling takes about the same time for every job, so smallest first gives most feedback soonest; equal
    jobs go in order of arrival.
    """

    def __init__(self) -> None:
        self._jobs: list[tuple[int, int, JobState]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[JobState]:
        return (job for _, _, job in self._jobs)

    def add(self, job: JobState) -> None:
        """Queue a job."""
        insort(self._jobs, (job.spec.gpus, job.order, job))

    def start(self, place: Callable[[int], tuple[int, ...] | None]) -> list[tuple[JobState, tuple[int, ...]]]:
        """Remove the jobs for which `place` finds GPUs, until the first for which it finds none."""
        started = []
        for gpus, _, job in self._jobs:
            where = place(gpus)
            if where is None:
                break
            started.append((job, where))
        del self._jobs[: len(started)]
        return started


class DividedNodes:
    """Free GPUs by node, consolidated: a job goes to the fullest node that holds it, or to whole idle nodes.

    The last `profiler` nodes belong to the profiler.
    """

    def __init__(self, cluster: Cluster, profiler: int) -> None:
        self._node_of = cluster.node_of
        first = cluster.first_gpu
        self._all = [node.gpus for node in cluster.servers]
        self._free = [
            list(range(first[n] + node.gpus - 1, first[n] - 1, -1)) for n, node in enumerate(cluster.servers)
        ]
        self._mine = [n >= len(self._all) - profiler for n in range(len(self._all))]

    @property
    def profiler_nodes(self) -> int:
        """Number of the profiler's nodes."""
        return sum(self._mine)

    def idle_fraction(self) -> float:
        """Return the idle fraction of the GPUs that are not the profiler's."""
        total = sum(n for n, mine in zip(self._all, self._mine, strict=True) if not mine)
        free = sum(len(f) for f, mine in zip(self._free, self._mine, strict=True) if not mine)
        return free / total if total else 0.0

    def lend(self, wanted: int) -> None:
        """Move idle nodes until the profiler has `wanted` nodes, or no node is idle."""
        while self.profiler_nodes != wanted:
            to_profiler = self.profiler_nodes < wanted
            for node, whole in enumerate(self._all):
                if self._mine[node] is not to_profiler and len(self._free[node]) == whole:
                    self._mine[node] = to_profiler
                    break
            else:
                return

    def take(self, gpus: int, *, profiler: bool) -> tuple[int, ...] | None:
        """Take `gpus` GPUs on one side, consolidated; return None if that is not possible."""
        nodes = [n for n, mine in enumerate(self._mine) if mine is profiler and self._free[n]]
        fitting = [n for n in nodes if len(self._free[n]) >= gpus]
        if fitting:
            return self._cut(min(fitting, key=lambda n: (len(self._free[n]), n)), gpus)
        idle = [n for n in nodes if len(self._free[n]) == self._all[n]]
        taken: list[int] = []
        for node in sorted(idle, key=lambda n: (-self._all[n], n)):
            if self._all[node] > gpus:
                break
            taken.append(node)
            gpus -= self._all[node]
        rest = [n for n in nodes if n not in taken and len(self._free[n]) >= gpus]
        if not taken or (gpus and not rest):
            return None
        found: tuple[int, ...] = ()
        for node in taken:
            found += self._cut(node, self._all[node])
        if gpus:
            found += self._cut(min(rest, key=lambda n: (len(self._free[n]), n)), gpus)
        return found

    def give(self, gpus: tuple[int, ...]) -> None:
        """Give GPUs back."""
        for gpu in gpus:
            self._free[self._node_of[gpu]].append(gpu)

    def _cut(self, node: int, gpus: int) -> tuple[int, ...]:
        free = self._free[node]
        free.sort(reverse=True)
        taken = tuple(free[: -gpus - 1 : -1])
        del free[-gpus:]
        return taken
