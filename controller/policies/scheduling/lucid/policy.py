"""Lucid as a scheduling policy: profile, estimate, bind, orchestrate (Hu et al., ASPLOS'23)."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.binder import (
    Candidate,
    DividedNodes,
    LucidOptions,
    ProfileQueue,
    Sharing,
    choose,
)
from controller.policies.scheduling.lucid.usage import GpuUsage, Size
from controller.policies.scheduling.policy import Decision, Group, JobState, Submission, View
from controller.vocabulary import Cluster

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
        self._anew: list[JobState] = []  # they lose their progress and start at the next decision
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
        for job in self._anew:
            self._enqueue(job)
        for order in [o for o, known in self._unread.items() if known.until_s <= now_s]:
            self._classify(self._unread.pop(order))
        decision = Decision([])
        self._anew = self._evict(decision)
        if self._options.profiler_nodes:
            self._anew += self._end_profiling(now_s, self._nodes)
            self._start_profiling(now_s, self._nodes)
            ends = [self._known[order].until_s for order in (*self._profiling, *self._unread)]
            decision.wake_s = min(ends, default=None)
        if self._anew:
            decision.reset, decision.wake_s = self._anew, math.nextafter(now_s, math.inf)
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
        there = sum(node.gpus for node in cluster.servers[-nodes:])
        if size > there:
            raise BadSpec(f"jobs of {size} GPUs cannot be profiled on {nodes} nodes with {there}")
        self._most_gpus = len(cluster.node_of) - there
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
            if self._options.eager and self._join(known, hosts, now_s, decision):
                continue
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
                if self._options.eager or not self._join(known, hosts, now_s, decision):
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
        self._nobody: set[tuple[int, Size, GpuUsage]] = (
            set()
        )  # kinds that found no host: later jobs of a kind are expected to run longer, and find none either

    def add(self, group: Group, candidate: Candidate | None) -> None:
        if candidate is not None:
            self._groups.setdefault(candidate.gpus, []).append(group)
            self._candidates.setdefault(candidate.gpus, []).append(candidate)
            self._nobody.clear()

    def take(self, newcomer: Candidate) -> tuple[Group, Candidate] | None:
        kind = newcomer.gpus, newcomer.size, newcomer.usage
        if kind in self._nobody:
            return None
        candidates = self._candidates.get(newcomer.gpus, [])
        best = choose(newcomer, candidates, self.sharing, self._rules)
        if best is None:
            if not newcomer.alone:
                self._nobody.add(kind)
            return None
        return self._groups[newcomer.gpus].pop(best), candidates.pop(best)
