"""Lucid as a scheduling policy: profile, estimate, bind, orchestrate (Hu et al., ASPLOS'23).

Its binder, and the queue and the nodes of its profiler (3.2 and 3.3):

- `may_join`, `choose`, `strategy`: which two jobs may share GPUs (lazy packing with a dynamic strategy);
- `LucidOptions`, `ProfileQueue`: which job the non-intrusive profiler measures next, for how long, and on
  how many nodes;
- `DividedNodes`: free GPUs of a cluster whose nodes are divided between the profiler and all other jobs.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from controller.policies.family import Options, option
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.usage import GpuUsage, Size
from controller.policies.scheduling.placement import FreeGpus
from controller.policies.scheduling.policy import Decision, Group, JobState, Submission, View
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
        self._all = cluster.sizes
        self._gpus = FreeGpus(replace(cluster, unavailable=frozenset()))
        self._free = self._gpus.by_node
        self.release = self._gpus.release
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
            return self._gpus.take(min(fitting, key=lambda n: (len(self._free[n]), n)), gpus)
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
            found += self._gpus.take(node, self._all[node])
        if gpus:
            found += self._gpus.take(min(rest, key=lambda n: (len(self._free[n]), n)), gpus)
        return found


Estimate = Callable[[JobState], float]
"""Function that predicts a job's duration alone on its GPUs, in seconds."""

Measure = Callable[[JobState], GpuUsage]
"""Function that returns the usage of a running job, as the profiler measures it."""

Forecast = Callable[[float], Sequence[float]]
"""Function of a time that returns the numbers of GPUs expected to be requested in the next intervals."""


@dataclass(slots=True)
class _TrackedJob:
    job: JobState
    expected_s: float
    size: Size | None = None
    usage: GpuUsage | None = None
    until_s: float = 0.0  # end of its profiling
    evicted: bool = False

    def candidate(self, now_s: float) -> Candidate | None:
        if self.size is None or self.usage is None:
            return None
        left_s = max(0.0, self.expected_s - self.job.attained_s(now_s))
        return Candidate(self.job.spec.gpus, self.size, self.usage, left_s, alone=self.evicted)


class LucidPolicy:
    """The policy Lucid.

    A job with few GPUs is profiled first, on separate nodes and for a limited time. If it does not end in
    this time, it restarts at iteration 0 later. Jobs start in order of expected duration times GPUs, and are
    never preempted. A job shares its GPUs with at most one other job, if the binder allows it. A job that is
    too large to be profiled is measured while it runs; after that, another job can join it. If the GPU use of
    two jobs that share GPUs varies too much, the job that joined later restarts alone, and never shares GPUs
    again.

    Args:
        options: Options of Lucid. Without profiler nodes, the usage of a job is known from the start.
        estimate: The workload estimate model; called when a job arrives, and when it has been measured.
        measure: Function that returns a job's usage, as the profiler measures it.
        analyse: The packing analyser: function that returns the sharing score of a usage.
        sharing: The dynamic strategy: function of the time and the fraction of idle GPUs that returns how
            much jobs share.
        forecast_gpus: Function of the time that returns the GPUs expected to be requested in the next
            intervals, for the profiler's scaling.
    """

    name = "lucid"

    def __init__(
        self,
        options: LucidOptions,
        *,
        estimate: Estimate,
        measure: Measure,
        analyse: Callable[[GpuUsage], Size],
        sharing: Callable[[float, float], Sharing] = lambda now_s, idle: Sharing.DEFAULT,
        forecast_gpus: Forecast = lambda now_s: (),
    ) -> None:
        self._options = options
        self._estimate = estimate
        self._measure = measure
        self._analyse = analyse
        self._sharing = sharing
        self._forecast_gpus = forecast_gpus
        self._nodes: DividedNodes | None = None
        self._most_gpus: int | None = None  # most GPUs of a job beside the profiler
        self._unread: dict[
            int, _TrackedJob
        ] = {}  # running jobs that were too large for the profiler and will be measured
        self._to_reset: list[JobState] = []  # they lose their progress and start at the next decision
        self._known: dict[int, _TrackedJob] = {}  # by order of arrival, as all below
        self._to_profile = ProfileQueue()
        self._profiling: dict[int, Group] = {}
        self._queue: list[tuple[float, int, JobState]] = []  # by priority
        self._running: dict[int, Group] = {}

    def decide(self, view: View) -> Decision:
        """Return the decision: the groups to profile, then the groups to run."""
        now_s = view.now_s
        if self._nodes is None:
            self._nodes = self._divide(view.cluster)
        for job in view.finished:
            self._forget(job, self._nodes)
        for job in view.arrived:
            self._admit(job)
        for job in self._to_reset:
            self._enqueue(job)
        for order in [o for o, known in self._unread.items() if known.until_s <= now_s]:
            self._classify(self._unread.pop(order))
        decision = Decision([])
        self._to_reset = self._evict(decision)
        if self._options.profiler_nodes:
            self._to_reset += self._end_profiling(now_s, self._nodes)
            self._start_profiling(now_s, self._nodes)
            ends = [self._known[order].until_s for order in (*self._profiling, *self._unread)]
            decision.wake_s = min(ends, default=None)
        if self._to_reset:
            decision.reset, decision.wake_s = self._to_reset, math.nextafter(now_s, math.inf)
        self._orchestrate(now_s, self._nodes, decision)
        groups = {id(group): group for group in self._running.values()}
        decision.groups = [*self._profiling.values(), *groups.values()]
        return decision

    def explain(self, job: JobState) -> str:
        """Describe the known properties of an unfinished job."""
        known = self._known[job.order]
        size = "not profiled" if known.size is None else known.size.name.title()
        priority = known.expected_s * job.spec.gpus
        return f"{size}; expected to run {known.expected_s:.0f} s, so its priority is {priority:.0f} GPU s"

    def _divide(self, cluster: Cluster) -> DividedNodes:
        nodes, size = self._options.profiler_nodes, self._options.node_gpus
        if not nodes:
            return DividedNodes(cluster, 0)
        if nodes >= len(cluster.servers):
            raise BadSpec(
                f"the profiler takes {nodes} of {len(cluster.servers)} nodes; want at least one left"
            )
        gpus = sum(node.gpus for node in cluster.servers[-nodes:])
        if size > gpus:
            raise BadSpec(f"jobs of {size} GPUs cannot be profiled on {nodes} nodes with {gpus}")
        self._most_gpus = len(cluster.node_of) - gpus
        return DividedNodes(cluster, nodes)

    def _admit(self, job: JobState) -> None:
        if self._most_gpus is not None and job.spec.gpus > self._most_gpus:
            raise BadSpec(
                f"job {job.spec.name!r} asks for {job.spec.gpus} GPUs; the profiler leaves {self._most_gpus}"
            )
        known = self._known[job.order] = _TrackedJob(job, self._estimate(job))
        if self._options.profiler_nodes and job.spec.gpus <= self._options.node_gpus:
            self._to_profile.add(job)
            return
        if not self._options.profiler_nodes:
            self._classify(known)
        self._enqueue(job)

    def _classify(self, known: _TrackedJob) -> None:
        known.usage = self._measure(known.job)
        known.size = self._analyse(known.usage)
        known.expected_s = self._estimate(known.job)  # now that its usage is known

    def _enqueue(self, job: JobState) -> None:
        insort(self._queue, (self._known[job.order].expected_s * job.spec.gpus, job.order, job))

    def _forget(self, job: JobState, nodes: DividedNodes) -> None:
        del self._known[job.order]
        self._unread.pop(job.order, None)
        profiled = self._profiling.pop(job.order, None)
        group = profiled or self._running.pop(job.order)
        rest = [member for member in group.jobs if member is not job and member.order in self._running]
        if profiled is not None or not rest:
            nodes.release(group.gpus)
        for member in rest:
            self._running[member.order] = Group((member,), group.gpus, reason="its partner has ended")

    def _evict(self, decision: Decision) -> list[JobState]:
        evicted = []
        for group in {id(g): g for g in self._running.values() if len(g.jobs) > 1}.values():
            if any(_variation(job.spec) >= self._options.unstable_at for job in group.jobs):
                *stay, last = group.jobs
                for job in stay:
                    self._running[job.order] = Group((job,), group.gpus, reason="its partner was evicted")
                del self._running[last.order]
                self._known[last.order].evicted = True
                evicted.append(last)
                decision.notes.append((last.spec.name, "evicted: the usage of its GPUs is unstable"))
        return evicted

    def _end_profiling(self, now_s: float, nodes: DividedNodes) -> list[JobState]:
        over = [o for o in self._profiling if self._known[o].until_s <= now_s]
        jobs = []
        for order in over:
            known = self._known[order]
            nodes.release(self._profiling.pop(order).gpus)
            self._classify(known)
            jobs.append(known.job)
        return jobs

    def _start_profiling(self, now_s: float, nodes: DividedNodes) -> None:
        rules, queue = self._options, len(self._to_profile)
        if rules.lent_nodes:  # otherwise the forecast, which may train a model, is not needed
            nodes.lend(rules.wanted_nodes(queue, nodes.profiler_nodes, self._forecast_gpus(now_s)))
        time_s = rules.time_s(queue)
        for job, gpus in self._to_profile.start(lambda wanted: nodes.allocate(wanted, profiler=True)):
            self._profiling[job.order] = Group((job,), gpus, reason=f"profiled for {time_s:g} s")
            self._known[job.order].until_s = now_s + time_s

    def _orchestrate(self, now_s: float, nodes: DividedNodes, decision: Decision) -> None:
        hosts = _Hosts(self._sharing(now_s, nodes.idle_fraction()), self._options)
        for group in self._running.values():
            if len(group.jobs) == 1:
                hosts.add(group, self._known[group.jobs[0].order].candidate(now_s))
        waiting: list[tuple[float, int, JobState]] = []
        refused: set[int] = set()  # GPU counts that no exclusive place was found for
        for position, entry in enumerate(self._queue):
            job = entry[2]
            known = self._known[job.order]
            gpus = None if job.spec.gpus in refused else nodes.allocate(job.spec.gpus, profiler=False)
            if gpus is not None:
                group = self._running[job.order] = Group((job,), gpus, reason=self.explain(job))
                hosts.add(group, known.candidate(now_s))
                self._read_later(known, now_s, decision)
            elif hosts.sharing is Sharing.OFF:
                waiting += self._queue[position:]  # the head of the queue blocks
                break
            else:
                refused.add(job.spec.gpus)
                if not self._join(known, hosts, now_s, decision):
                    waiting.append(entry)
        self._queue = waiting

    def _read_later(self, known: _TrackedJob, now_s: float, decision: Decision) -> None:
        """Plan to measure a starting job after it has run for some time, if its usage is not known yet."""
        if known.size is None and self._options.profiler_nodes:
            known.until_s = now_s + self._options.profile_s
            self._unread[known.job.order] = known
            decision.wake_s = min(decision.wake_s or math.inf, known.until_s)

    def _join(self, known: _TrackedJob, hosts: _Hosts, now_s: float, decision: Decision) -> bool:
        newcomer = known.candidate(now_s)
        found = None if newcomer is None else hosts.take(newcomer)
        if newcomer is None or found is None:
            return False
        host, partner = found
        reason = f"{newcomer.size.name.title()} beside {partner.size.name.title()}"
        shared = Group((*host.jobs, known.job), host.gpus, reason=reason)
        for member in shared.jobs:
            self._running[member.order] = shared
        decision.notes.append((known.job.spec.name, f"shares with {host.jobs[0].spec.name}: {reason}"))
        return True


def _variation(spec: Submission) -> float:
    """Return the coefficient of variation of a job's GPU use.

    Policies do not know it before the job shares GPUs. Raises BadSpec if it is not a number.
    """
    text = spec.extra.get("gpu_util_cv") or "0"
    try:
        return float(text)
    except ValueError:
        raise BadSpec(f"job {spec.name!r}: gpu_util_cv {text!r} is not a number") from None


class _Hosts:
    """Jobs that run alone and may be joined by another job, by number of GPUs, during one decision."""

    def __init__(self, sharing: Sharing, rules: LucidOptions) -> None:
        self.sharing = sharing
        self._rules = rules
        self._groups: dict[int, list[Group]] = {}
        self._candidates: dict[int, list[Candidate]] = {}
        self._unhosted: set[tuple[int, Size, GpuUsage]] = (
            set()
        )  # kinds that found no host: later jobs of a kind are expected to run longer, and find none either

    def add(self, group: Group, candidate: Candidate | None) -> None:
        if candidate is not None:
            self._groups.setdefault(candidate.gpus, []).append(group)
            self._candidates.setdefault(candidate.gpus, []).append(candidate)
            self._unhosted.clear()

    def take(self, newcomer: Candidate) -> tuple[Group, Candidate] | None:
        kind = newcomer.gpus, newcomer.size, newcomer.usage
        if kind in self._unhosted:
            return None
        candidates = self._candidates.get(newcomer.gpus, [])
        best = choose(newcomer, candidates, self.sharing, self._rules)
        if best is None:
            if not newcomer.alone:
                self._unhosted.add(kind)
            return None
        return self._groups[newcomer.gpus].pop(best), candidates.pop(best)
