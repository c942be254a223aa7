"""The rules of Lucid's public simulator where they differ from the paper, to check its figures.

It steps through time second by second, so that all decisions are at whole seconds
(`SteppedRun`), and a job that counts down (all but those of the queue policies) takes one second
more than its duration. Jobs go to the fullest node that holds them. In FIFO, SJF and QSSF the head of the
queue blocks. Lucid profiles all jobs before its main cluster runs any, which then gets them at their original
times (`Profiling`); it packs eagerly, by scores that come from a table, and forgets to restore the speed of a
guest whose host ends; such a guest never shares again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.family import Config, Pair, PairSpeed
from controller.policies.scheduling.lucid.policy import DividedNodes
from controller.policies.scheduling.lucid.usage import Size
from controller.policies.scheduling.policy import Decision, Group, JobState, SpeedModel, Submission, View
from controller.vocabulary import Cluster

Rank = Callable[[JobState], float]


def counting_down(specs: Iterable[Submission]) -> list[Submission]:
    """Return the jobs one second longer: the cost of counting down to zero."""
    return [replace(spec, iterations=spec.iterations + 1 / spec.iteration_s) for spec in specs]


class HeadOfLine:
    """Start jobs by rank until one does not fit; never stop any: FIFO, SJF and QSSF.

    `rank_new` replaces the rank while all waiting jobs have just come, as QSSF does with their GPU counts.
    """

    def __init__(self, name: str, rank: Rank, *, rank_new: Rank | None = None) -> None:
        self.name = name
        self._rank = rank
        self._rank_new = rank_new
        self._queue: list[JobState] = []
        self._running: dict[int, Group] = {}
        self._nodes: DividedNodes | None = None

    def decide(self, view: View) -> Decision:
        """Return the running and the starting groups."""
        nodes = self._nodes = self._nodes or DividedNodes(view.cluster, 0)
        for job in view.finished:
            nodes.release(self._running.pop(job.order).gpus)
        self._queue += view.arrived
        rank = self._rank
        if self._rank_new is not None:
            self._queue.sort(key=self._rank_new)
            if len(self._queue) == len(view.arrived):
                rank = self._rank_new
        self._queue.sort(key=rank)
        started = 0
        for job in self._queue:
            gpus = nodes.allocate(job.spec.gpus, profiler=False)
            if gpus is None:
                break
            self._running[job.order] = Group((job,), gpus, reason="first in the queue")
            started += 1
        del self._queue[:started]
        return Decision(list(self._running.values()))


class Quota:
    """Preempt by rank: choose jobs as long as the cluster has GPUs, on any nodes.

    A chosen job that finds no node waits. Among equal ranks, waiting jobs come first unless
    `running_first`. With `period_s`, jobs are chosen at its multiples only, else whenever one may have
    overtaken another.
    """

    def __init__(
        self,
        name: str,
        rank: Callable[[JobState, float], float],
        *,
        running_first: bool = False,
        period_s: float | None = None,
    ) -> None:
        self.name = name
        self._rank = rank
        self._running_first = running_first
        self._period_s = period_s
        self._waiting: list[JobState] = []
        self._running: dict[int, Group] = {}
        self._nodes: DividedNodes | None = None
        self._due_s = 0.0  # when jobs are chosen next, with a period

    def decide(self, view: View) -> Decision:
        """Return the running and the starting groups."""
        now_s = view.now_s
        nodes = self._nodes = self._nodes or DividedNodes(view.cluster, 0)
        for job in view.finished:
            nodes.release(self._running.pop(job.order).gpus)
        if self._period_s is not None and not self._waiting and not self._running:
            self._due_s = math.ceil(now_s / self._period_s) * self._period_s
        self._waiting += view.arrived
        if self._period_s is None:
            changed = self._choose(now_s, nodes, view.cluster.gpus)
            wake_s = now_s + 1 if changed else self._overtaken_s(now_s)
        else:
            if now_s >= self._due_s:
                self._choose(now_s, nodes, view.cluster.gpus)
                self._due_s = (now_s // self._period_s + 1) * self._period_s
            wake_s = self._due_s
        return Decision(list(self._running.values()), wake_s if view.jobs else None)

    def _choose(self, now_s: float, nodes: DividedNodes, quota: int) -> bool:
        """Stop and start jobs; return whether a job was stopped, which changes its rank."""
        running = [group.jobs[0] for group in self._running.values()]
        jobs = [*running, *self._waiting] if self._running_first else [*self._waiting, *running]
        jobs.sort(key=lambda job: self._rank(job, now_s))
        starting = []
        stopped = False
        for job in jobs:
            runs = job.order in self._running
            if job.spec.gpus <= quota:
                quota -= job.spec.gpus
                if not runs:
                    starting.append(job)
            elif runs:
                nodes.release(self._running.pop(job.order).gpus)
                self._waiting.append(job)
                stopped = True
        for job in starting:
            gpus = nodes.allocate(job.spec.gpus, profiler=False)
            if gpus is not None:
                self._waiting.remove(job)
                self._running[job.order] = Group(
                    (job,), gpus, reason="among the first that the GPUs suffice for"
                )
        return stopped

    def _overtaken_s(self, now_s: float) -> float | None:
        """Return the time at which a running job's rank, less one a second, is below a waiting one's."""
        waiting = sorted(self._rank(job, now_s) for job in self._waiting)
        ranks = [self._rank(group.jobs[0], now_s) for group in self._running.values()]
        before = ((rank, bisect_right(waiting, rank)) for rank in ranks)
        ahead_s = [rank - waiting[position - 1] for rank, position in before if position]
        return now_s + max(1, math.floor(min(ahead_s)) + 1) if ahead_s else None


def owed_s(job: JobState, overhead_s: Callable[[int], float]) -> float:
    """Return the overhead of all its stops that a waiting job has still to pay."""
    paid_s = job.attained_s(0.0) - (job.spec.iterations - job.iterations_left(0.0)) * job.alone_s
    return job.preemptions * overhead_s(job.spec.gpus) - paid_s


class StopOverhead(SpeedModel):
    """Speeds of jobs alone, as given; each stop costs `overhead_s` of the GPU count at the next start."""

    def __init__(self, overhead_s: Callable[[int], float]) -> None:
        self._overhead_s = overhead_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the members' own figures."""
        return [job.alone_s for job in group.jobs]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost that each member still owes, in seconds."""
        return [owed_s(job, self._overhead_s) if job.starts else 0.0 for job in group.jobs]


def remaining_with_overhead(overhead_s: Callable[[int], float]) -> Callable[[JobState, float], float]:
    """Return SRTF's rank: the remaining time, with the future or remaining cost of a new start."""

    def rank(job: JobState, now_s: float) -> float:
        if job.group is not None:
            return job.end_s() - now_s
        return job.remaining_s(now_s) + (owed_s(job, overhead_s) if job.starts else 0.0)

    return rank


def two_queues(limit: float) -> Callable[[JobState, float], float]:
    """Return Tiresias' rank with one limit, in GPU seconds: below it first, and by arrival."""

    def rank(job: JobState, now_s: float) -> float:
        low = job.attained_s(now_s) * job.spec.gpus > limit
        return job.spec.arrival_s + (1e12 if low else 0.0)

    return rank


@dataclass(frozen=True, slots=True)
class Scored:
    """A job as the public Lucid knows it: expected seconds times GPUs, sharing score, memory."""

    priority: float
    size: Size
    memory_mb: float


class Profiling:
    """The profiler: the last nodes, where small jobs run for a time, fewest GPUs first; the head blocks.

    Jobs that are done by then end there. The others begin anew in the main cluster, at the times at which
    they came: the public simulator runs the profiler first, by itself. So here they only hold its GPUs.

    Args:
        nodes: Number of its nodes.
        limit_s: Longest time of a job there.
        max_gpus: Larger jobs are not profiled.
    """

    def __init__(self, *, nodes: int = 2, limit_s: float = 80.0, max_gpus: int = 4) -> None:
        self.nodes = nodes
        self._limit_s = limit_s
        self._max_gpus = max_gpus
        self._queue: list[JobState] = []
        self._running: dict[int, Group] = {}
        self._held: list[tuple[float, tuple[int, ...]]] = []  # until when, and which GPUs; ascending

    def ends(self, spec: Submission) -> bool:
        """Return whether the job ends in the profiler."""
        return spec.gpus <= self._max_gpus and spec.duration_s <= self._limit_s

    def decide(self, view: View, nodes: DividedNodes) -> tuple[list[Group], float | None]:
        """Return the jobs that end here, and the times at which other jobs free their GPUs."""
        for job in view.finished:
            if job.order in self._running:
                nodes.release(self._running.pop(job.order).gpus)
        while self._held and self._held[0][0] <= view.now_s:
            nodes.release(self._held.pop(0)[1])
        self._queue += [job for job in view.arrived if job.spec.gpus <= self._max_gpus]
        self._queue.sort(key=lambda job: job.spec.gpus)
        started = 0
        for job in self._queue:
            gpus = nodes.allocate(job.spec.gpus, profiler=True)
            if gpus is None:
                break
            if self.ends(job.spec):
                self._running[job.order] = Group((job,), gpus, reason="ends in the profiler")
            else:
                self._held.append((view.now_s + self._limit_s, gpus))
            started += 1
        del self._queue[:started]
        return list(self._running.values()), self._held[0][0] if self._held else None


class LucidReplica:
    """Lucid: by priority, first a partner, else a node; no job blocks others.

    Without `profiling` the main cluster has all nodes and all jobs. Raises BadSpec if the
    profiler leaves no node, and at the arrival of a job that is larger than the remaining nodes.
    """

    name = "lucid"

    def __init__(
        self,
        scored: Callable[[JobState], Scored],
        *,
        gpu_memory_mb: float = 24_576,
        profiling: Profiling | None = None,
    ) -> None:
        self._scored = scored
        self._gpu_memory_mb = gpu_memory_mb
        self._profiling = profiling or Profiling(nodes=0, max_gpus=0)
        self._known: dict[int, Scored] = {}
        self._queue: list[JobState] = []
        self._running: dict[int, Group] = {}  # by order of arrival, in order of start
        self._exclusive: set[int] = set()
        self._nodes: DividedNodes | None = None

    def decide(self, view: View) -> Decision:
        """Return the running and the starting groups."""
        nodes = self._nodes = self._nodes or self._divide(view.cluster)
        profiled, wake_s = self._profiling.decide(view, nodes)
        decision = Decision(profiled, wake_s if view.jobs else None)
        for job in view.finished:
            if job.order in self._running:
                self._release(job, nodes)
        for job in view.arrived:
            if not self._profiling.ends(job.spec):
                self._admit(job, view.cluster)
        self._queue.sort(key=lambda job: self._known[job.order].priority)
        self._queue = [job for job in self._queue if not self._start(job, nodes, decision)]
        decision.groups += {id(g): g for g in self._running.values()}.values()
        return decision

    def _divide(self, cluster: Cluster) -> DividedNodes:
        taken = self._profiling.nodes
        if taken >= len(cluster.servers):
            raise BadSpec(f"the profiler takes {taken} of {len(cluster.servers)} nodes; want more nodes")
        return DividedNodes(cluster, taken)

    def _admit(self, job: JobState, cluster: Cluster) -> None:
        rest = cluster.servers[: len(cluster.servers) - self._profiling.nodes]
        gpus = sum(node.gpus for node in rest)
        if job.spec.gpus > gpus:
            raise BadSpec(
                f"job {job.spec.name!r} asks for {job.spec.gpus} GPUs; beside the profiler's nodes are {gpus}"
            )
        self._known[job.order] = self._scored(job)
        self._queue.append(job)

    def _start(self, job: JobState, nodes: DividedNodes, decision: Decision) -> bool:
        host = self._host(job)
        if host is not None:
            reason = f"shares with {host.spec.name}: the first with as many GPUs, memory, score and priority"
            shared = Group((host, job), self._running[host.order].gpus, reason=reason)
            self._running[host.order] = self._running[job.order] = shared
            self._exclusive.discard(host.order)
            decision.notes.append((job.spec.name, reason))
            return True
        gpus = nodes.allocate(job.spec.gpus, profiler=False)
        if gpus is None:
            return False
        self._running[job.order] = Group((job,), gpus, reason="alone: nobody to share with")
        self._exclusive.add(job.order)
        return True

    def _host(self, job: JobState) -> JobState | None:
        if job.spec.gpus > 8:
            return None
        mine = self._known[job.order]
        for order in self._running:
            if order in self._exclusive:
                host, its = self._running[order].jobs[0], self._known[order]
                if (
                    host.spec.gpus == job.spec.gpus
                    and its.memory_mb < self._gpu_memory_mb - mine.memory_mb
                    and its.size + mine.size <= 2
                    and mine.priority <= its.priority * 2
                ):
                    return host
        return None

    def _release(self, job: JobState, nodes: DividedNodes) -> None:
        group = self._running.pop(job.order)
        del self._known[job.order]
        self._exclusive.discard(job.order)
        rest = [member for member in group.jobs if member is not job and member.order in self._running]
        if not rest:
            nodes.release(group.gpus)
            return
        self._running[rest[0].order] = Group((rest[0],), group.gpus, reason="alone: its partner has ended")
        if rest[0] is group.jobs[0]:  # only a host gets its speed back, and may share again
            self._exclusive.add(rest[0].order)


class LucidReplicaSpeed(PairSpeed):
    """Measured pairs, where a guest always keeps its speed beside its host.

    The second member of a group is the guest. Holds for one run: it remembers guests by their order of
    arrival.
    """

    def __init__(self, pairs: Iterable[Pair], config_of: Callable[[Submission], Config]) -> None:
        super().__init__(pairs, config_of)
        self._guests: dict[int, float] = {}

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the members' figures."""
        if len(group.jobs) == 1:
            job = group.jobs[0]
            return [self._guests.get(job.order, job.alone_s)]
        found = super().iteration_s(group)
        self._guests[group.jobs[1].order] = found[1]
        return found
