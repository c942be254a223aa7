"""Lucid's binder, and the queue and the nodes of Lucid's profiler (Lucid, 3.2 and 3.3).

- `may_join`, `choose`, `strategy`: which two jobs may share GPUs (lazy packing with a dynamic strategy);
- `LucidOptions`, `ProfileQueue`: which job the non-intrusive profiler measures next, for how long, and on
  how many nodes;
- `DividedNodes`: free GPUs of a cluster whose nodes are divided between the profiler and all other jobs.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from controller.policies.family import Options, option
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.usage import GpuUsage, Size
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

    `expected_s` is its expected remaining run time in seconds; `alone` is true for a job that must not share
    GPUs, because it was evicted once.
    """

    gpus: int
    size: Size
    usage: GpuUsage
    expected_s: float
    alone: bool = False


GROW_AT, SHRINK_AT = 10, 5
"""Limits of the profiler's queue, in jobs. With more jobs than the first limit, the profiler borrows nodes
and profiles each job for a shorter time. With fewer jobs than the second limit, the profiler returns
nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LucidOptions(Options):
    """Options of Lucid, and internal settings of its parts.

    Attributes:
        node_gpus: GPUs of a server; jobs with more GPUs run on several servers, are not profiled, and do not
            share GPUs.
        gpu_memory_mb: Memory of a GPU, in MB. Two jobs that share a GPU must both fit into its memory.
        eager: Whether to look for a partner before looking for free GPUs, as the public simulator does.
            Lucid's lazy packing shares only if no GPUs are free.
        minimum: Number of ended jobs that are needed to train the first duration model.
        seed: Seed of the training.
    """

    profiler_nodes: int = option("nodes for profiling; 0: profiles are known in advance", 1, 0, 1000)
    lent_nodes: int = option(
        "maximum number of nodes to lend to the profiler while more than ten jobs wait for it", 0, 0, 1000
    )
    busy_gpus: float = option(
        "lucid:online keeps lent nodes if it expects requests for more GPUs than this in ten minutes", 1e6
    )
    burst_s: float = option(
        "maximum time to profile a job while more than ten jobs wait for it, in s; 0: profile_s",
        0.0,
        0.0,
        1e6,
    )
    monotone: bool = option(
        "1: lucid:online expects jobs of more GPUs to run no shorter, all else equal", False
    )
    profile_s: float = option("maximum time to profile a job, in s", 80.0, 1.0, 1e6)
    capacity: int = option("maximum sum of two jobs' sharing scores on one GPU; 0: no sharing", 2, 0, 2)
    patience: float = option(
        "maximum ratio of a job's expected time to its partner's on a shared GPU", 2.0, 0.01, 1e6
    )
    unstable_at: float = option("least coefficient of variation of GPU use that evicts a job", 0.5, 0.01, 1e6)
    period_s: float = option("interval at which lucid:online retrains its models, in s", 86_400.0, 60.0, 1e9)
    low: float = option(
        "lucid:online shares less if at most this many jobs arrive in ten minutes", 1.0, 0.0, 1e6
    )
    very_low: float = option(
        "lucid:online shares no idle GPUs if at most this many jobs arrive in ten minutes", 0.5, 0.0, 1e6
    )
    node_gpus: int = 8
    gpu_memory_mb: float = 24_576.0
    eager: bool = False
    minimum: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.burst_s > self.profile_s:
            raise BadSpec(f"burst_s is {self.burst_s}; want at most profile_s, {self.profile_s} s")
        if self.very_low > self.low:
            raise BadSpec(f"very_low is {self.very_low} and low is {self.low}; want very_low <= low")

    def time_s(self, queue: int) -> float:
        """Return the seconds for which to profile a job while `queue` jobs wait (time-aware scaling)."""
        return self.burst_s if self.burst_s and queue > GROW_AT else self.profile_s

    def wanted_nodes(self, queue: int, now: int, forecast_gpus: Sequence[float] = ()) -> int:
        """Return the desired number of profiler nodes (time-aware scaling): `now`, or one more or fewer.

        The profiler borrows a node while more than `GROW_AT` jobs wait, and returns one when fewer than
        `SHRINK_AT` jobs wait and the forecast does not predict the next burst.
        """
        if queue > GROW_AT and now < self.profiler_nodes + self.lent_nodes:
            return now + 1
        expected = sum(forecast_gpus) / len(forecast_gpus) if forecast_gpus else 0.0
        if queue < SHRINK_AT and now > self.profiler_nodes and expected <= self.busy_gpus:
            return now - 1
        return now


def may_join(newcomer: Candidate, partner: Candidate, sharing: Sharing, rules: LucidOptions) -> bool:
    """Return whether a job may join a partner that runs alone.

    Args:
        newcomer: The job to start.
        partner: The running job.
        sharing: The GPU sharing capacity.
        rules: The binder's settings.
    """
    return (
        sharing.value is not None
        and newcomer.gpus == partner.gpus
        and newcomer.gpus <= rules.node_gpus
        and not newcomer.alone
        and not partner.alone
        and newcomer.usage.memory_mb + partner.usage.memory_mb < rules.gpu_memory_mb
        and newcomer.size + partner.size <= sharing.value
        and newcomer.expected_s <= partner.expected_s * rules.patience
    )


def choose(
    newcomer: Candidate, partners: Sequence[Candidate], sharing: Sharing, rules: LucidOptions
) -> int | None:
    """Return the position of the best partner; None if there is none.

    The best has the lowest sharing score, then the longest expected run time, then the first position.

    Args:
        newcomer: The job to start.
        partners: The running jobs that it might join.
        sharing: The GPU sharing capacity.
        rules: The binder's settings.
    """
    allowed = [
        (int(partner.size), -partner.expected_s, position)
        for position, partner in enumerate(partners)
        if may_join(newcomer, partner, sharing, rules)
    ]
    return min(allowed)[2] if allowed else None


def strategy(rules: LucidOptions, *, now: float, forecast: Sequence[float], idle: float) -> Sharing:
    """Return how much jobs should share GPUs (dynamic strategy).

    While few jobs arrive, jobs share less, because sharing slows them down and saves little waiting. Sharing
    is reduced only if few jobs are forecast, too: otherwise later jobs would have to wait.

    Args:
        rules: The thresholds.
        now: Jobs that arrived in the last interval.
        forecast: Jobs expected in the next intervals.
        idle: Fraction of idle GPUs.
    """
    most = max([now, *forecast])
    if most <= rules.very_low and idle > 0:
        return Sharing.OFF
    return Sharing.APATHETIC if most <= rules.low else Sharing.DEFAULT


class ProfileQueue:
    """Jobs that wait for profiling, fewest GPUs first (space-aware profiling, algorithm 1).

    Profiling takes about equally long for every job, so most jobs are profiled soon if small jobs go first.
    Jobs with equal numbers of GPUs go in order of arrival.
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
        """Remove jobs in order until `place` finds no GPUs for a job; return the jobs with their GPUs."""
        started = []
        for gpus, _, job in self._jobs:
            where = place(gpus)
            if where is None:
                break
            started.append((job, where))
        del self._jobs[: len(started)]
        return started


class DividedNodes:
    """Free GPUs by node. Some nodes belong to the profiler: at first the last `profiler` nodes.

    A job gets GPUs of the fullest node with enough free GPUs, or else whole idle nodes.
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
        """Move idle nodes to or from the profiler until it has `wanted` nodes.

        Stop earlier if no idle node is left to move.
        """
        while self.profiler_nodes != wanted:
            to_profiler = self.profiler_nodes < wanted
            for node, whole in enumerate(self._all):
                if self._mine[node] is not to_profiler and len(self._free[node]) == whole:
                    self._mine[node] = to_profiler
                    break
            else:
                return

    def allocate(self, gpus: int, *, profiler: bool) -> tuple[int, ...] | None:
        """Reserve GPUs of the profiler's nodes or, if `profiler` is false, of other nodes; None: too few."""
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

    def release(self, gpus: tuple[int, ...]) -> None:
        """Mark these GPUs as free."""
        for gpu in gpus:
            self._free[self._node_of[gpu]].append(gpu)

    def _cut(self, node: int, gpus: int) -> tuple[int, ...]:
        free = self._free[node]
        free.sort(reverse=True)
        taken = tuple(free[: -gpus - 1 : -1])
        del free[-gpus:]
        return taken
