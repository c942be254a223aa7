"""The event loop: jobs arrive, the core decides, and jobs run and end as the speed model predicts.

A record has the result of each job, a few integrals over time, and, on request, curves.

Time jumps from event to event: an arrival, an end, or the next time at which the core needs a `Tick`. The
loop reports events to the core, and decides nothing itself. Predicted ends are kept in a heap. A speed model
of jobs that contend (`ContendedSpeed`) is evaluated whenever jobs have started, stopped or ended, and its
speeds are reported to the core as the jobs' progress. A simulation's result depends only on its arguments.
Complexity: O(log n + groups) per event, in addition to the policy's own work.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.core.allocation import Allocation
from controller.core.core import Core, Rules
from controller.core.events import Progressed, Submitted
from controller.policies.family import Setup
from controller.policies.scheduling.errors import BadSpec, Stuck
from controller.policies.scheduling.policy import (
    RESOURCES,
    ContendedSpeed,
    Group,
    JobState,
    Policy,
    SpeedModel,
    Submission,
)
from controller.vocabulary import Cluster


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The result of one job.

    `alone_s` is the job's duration alone, by the simulation's speed model. `completed` is False for a job
    that was ended because it could no longer meet its deadline.
    """

    spec: Submission
    start_s: float
    finish_s: float
    attained_s: float
    waited_s: float
    alone_s: float
    starts: int
    preemptions: int
    completed: bool = True

    @classmethod
    def of(cls, job: JobState, *, completed: bool = True) -> EndedJob:
        """Return the result of a job that has ended."""
        assert job.start_s is not None
        assert job.finish_s is not None
        return cls(
            spec=job.spec,
            start_s=job.start_s,
            finish_s=job.finish_s,
            attained_s=job.attained_s(job.finish_s),
            waited_s=job.waited_s,
            alone_s=job.spec.iterations * job.alone_s,
            starts=job.starts,
            preemptions=job.preemptions,
            completed=completed,
        )

    @property
    def jct_s(self) -> float:
        """Job completion time: from submission to end."""
        return self.finish_s - self.spec.arrival_s

    @property
    def in_time(self) -> bool:
        """Whether the job had a deadline and met it."""
        return self.completed and self.spec.deadline_s is not None and self.jct_s <= self.spec.deadline_s

    @property
    def slowdown(self) -> float:
        """Completion time over time alone."""
        return self.jct_s / self.alone_s


@dataclass(frozen=True, slots=True)
class Curves:
    """Samples over time, as arrays of equal length; `busy` has the busy fraction, one array per resource."""

    time_s: Sequence[float]
    queue: Sequence[float]
    gpus: Sequence[float]
    blocking: Sequence[float]
    busy: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """All results of a simulation; `measure` computes metrics from these."""

    policy: str
    cluster: Cluster
    jobs: Sequence[EndedJob]
    begin_s: float
    end_s: float
    queue_integral: float
    gpu_integral: float
    decisions: int
    curves: Curves | None = field(default=None)


class RunRecorder:
    """Recorder of a running simulation; it drops every second sample when curves have `POINTS` samples."""

    POINTS = 4096

    def __init__(self, cluster: Cluster, *, detail: bool) -> None:
        self._cluster = cluster
        self._detail = detail
        self._jobs: list[EndedJob] = []
        self._begin_s = math.inf
        self._last_s = 0.0
        self._queue = self._gpus = 0
        self._queue_integral = self._gpu_integral = 0.0
        self._decisions = 0
        self._next_sample_s = -math.inf
        self._step_s = 0.0
        self._samples = [array("d") for _ in range(4 + len(RESOURCES))]

    def ended(self, job: JobState, *, completed: bool = True) -> None:
        """Record an ended job."""
        self._jobs.append(EndedJob.of(job, completed=completed))

    def decided(
        self,
        now_s: float,
        groups: Sequence[Group],
        jobs: Mapping[str, JobState],
        running: int,
        held_gpus: int | None = None,
    ) -> None:
        """Record the state from now on.

        Args:
            now_s: The time.
            groups: The running groups.
            jobs: The unfinished jobs, by name.
            running: Number of running jobs.
            held_gpus: Number of GPUs that jobs hold; None: count them.
        """
        if self._begin_s == math.inf:
            self._begin_s = self._last_s = now_s
        self._count_until(now_s)
        self._decisions += 1
        self._queue = len(jobs) - running
        self._gpus = count_held_gpus(groups) if held_gpus is None else held_gpus
        if self._detail and now_s >= self._next_sample_s:
            self._sample(now_s, groups, jobs)

    def close(self) -> None:
        """Record that the last job has ended."""
        if self._jobs:
            self._count_until(self._jobs[-1].finish_s)

    def result(self, policy: str) -> SimulationResult:
        """Return the result of the simulation; `policy` is the policy's name."""
        time_s, queue, gpus, blocking, *busy = self._samples
        curves = Curves(time_s, queue, gpus, blocking, dict(zip(RESOURCES, busy, strict=True)))
        return SimulationResult(
            policy=policy,
            cluster=self._cluster,
            jobs=self._jobs,
            begin_s=self._begin_s if self._jobs else 0.0,
            end_s=self._last_s,
            queue_integral=self._queue_integral,
            gpu_integral=self._gpu_integral,
            decisions=self._decisions,
            curves=curves if self._detail else None,
        )

    def _count_until(self, now_s: float) -> None:
        elapsed_s = now_s - self._last_s
        self._queue_integral += elapsed_s * self._queue
        self._gpu_integral += elapsed_s * self._gpus
        self._last_s = now_s

    def _sample(self, now_s: float, groups: Sequence[Group], jobs: Mapping[str, JobState]) -> None:
        waiting = [job for job in jobs.values() if job.group is None]
        blocking = sum(job.waiting_s(now_s) / job.remaining_s(now_s) for job in waiting) / max(
            1, len(waiting)
        )
        busy = [0.0] * len(RESOURCES)
        for group in groups:
            for job in group.jobs:
                share = len(group.gpus) / (job.iteration_s * self._cluster.gpus)
                for number, stage_s in enumerate(by_resource(job.spec.stages_s)):
                    busy[number] += share * stage_s
        for values, value in zip(
            self._samples, (now_s, self._queue, self._gpus, blocking, *busy), strict=True
        ):
            values.append(value)
        if len(self._samples[0]) >= self.POINTS:
            for number, values in enumerate(self._samples):
                self._samples[number] = values[::2]
            self._step_s = (now_s - self._samples[0][0]) / (self.POINTS // 2)
        self._next_sample_s = now_s + self._step_s


def count_held_gpus(groups: Sequence[Group]) -> int:
    """Return the number of GPUs that jobs hold; a GPU that several groups share counts once."""
    count = 0
    for group in groups:
        if group.neighbours:
            return len({gpu for each in groups for gpu in each.gpus})
        count += len(group.gpus)
    return count


def by_resource(stages_s: Sequence[float]) -> Sequence[float]:
    """Return one time for each of `RESOURCES`, in seconds.

    Exactly three stages are CPU, GPU and network, with 0 for storage. Otherwise the stages begin with
    storage, and missing ones are 0.
    """
    match len(stages_s):
        case 0:
            return (0.0,) * len(RESOURCES)
        case 3:
            return (0.0, *stages_s)
        case _:
            return tuple(stages_s[: len(RESOURCES)]) + (0.0,) * (len(RESOURCES) - len(stages_s))


# ---------------------------------------------------------------------------
# Condense a simulation's result into the metrics that papers compare.


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of one simulation; times in seconds.

    Attributes:
        policy: The policy that was simulated.
        jobs: Number of jobs that ended.
        avg_jct_s: Mean completion time, from submission to end.
        median_jct_s: Median completion time.
        p99_jct_s: ``sorted[int(0.99 * n)]`` of the completion times, as the public simulators print it.
        makespan_s: Time from the start of the trace to the end of the last job.
        avg_wait_s: Mean time that a job waits in all: before its first start, and after preemptions.
        avg_queue: Mean number of waiting jobs over time.
        gpu_busy: Fraction of all GPUs that were given to jobs, from the first arrival to the last end.
        restarts: Starts beyond the first, over all jobs.
        preemptions: Number of times that a running job was stopped.
        avg_slowdown: Mean of completion time over time alone.
        p99_slowdown: 99th percentile of completion time over time alone, computed as `p99_jct_s`.
        fairness: Jain's index of the slowdowns' inverse, 1: all jobs are slowed down equally.
        decisions: Number of the policy's decisions.
        deadlines: Number of jobs with deadlines.
        deadlines_met: Number of jobs that met their deadline.
    """

    policy: str
    jobs: int
    avg_jct_s: float
    median_jct_s: float
    p99_jct_s: float
    makespan_s: float
    avg_wait_s: float
    avg_queue: float
    gpu_busy: float
    restarts: int
    preemptions: int
    avg_slowdown: float
    p99_slowdown: float
    fairness: float
    decisions: int
    deadlines: int
    deadlines_met: int


def measure(result: SimulationResult) -> Metrics:
    """Return the metrics of `result`; all zero if there was no job."""
    jobs = result.jobs
    jcts = sorted(job.jct_s for job in jobs)
    slowdowns = sorted(job.slowdown for job in jobs)
    span_s = result.end_s - result.begin_s
    count = max(1, len(jobs))
    speeds = [1.0 / slowdown for slowdown in slowdowns if slowdown > 0]
    squares = sum(speed * speed for speed in speeds)
    return Metrics(
        policy=result.policy,
        jobs=len(jobs),
        avg_jct_s=math.fsum(jcts) / count,
        median_jct_s=_at(jcts, 0.5),
        p99_jct_s=_at(jcts, 0.99),
        makespan_s=max((job.finish_s for job in jobs), default=0.0),
        avg_wait_s=math.fsum(job.waited_s for job in jobs) / count,
        avg_queue=result.queue_integral / span_s if span_s > 0 else 0.0,
        gpu_busy=result.gpu_integral / (span_s * result.cluster.gpus) if span_s > 0 else 0.0,
        restarts=sum(job.starts - 1 for job in jobs),
        preemptions=sum(job.preemptions for job in jobs),
        avg_slowdown=math.fsum(slowdowns) / count,
        p99_slowdown=_at(slowdowns, 0.99),
        fairness=sum(speeds) ** 2 / (len(speeds) * squares) if squares else 1.0,
        decisions=result.decisions,
        deadlines=sum(job.spec.deadline_s is not None for job in jobs),
        deadlines_met=sum(job.in_time for job in jobs),
    )


def _at(ordered: Sequence[float], fraction: float) -> float:
    return ordered[min(int(len(ordered) * fraction), len(ordered) - 1)] if ordered else 0.0


# ---------------------------------------------------------------------------
# The next job to end.


ROOM = 64
"""Number of outdated entries that the heap may have beyond the number of current entries."""


class EndQueue:
    """Heap of predicted ends of jobs. An entry becomes outdated when the job's speed changes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, JobState]] = []
        self._room = ROOM

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, job: JobState) -> None:
        """Record the predicted end of `job`."""
        heapq.heappush(self._heap, (job.end_s(), job.order, job.version, job))
        if len(self._heap) > self._room:
            self._tidy()

    def _tidy(self) -> None:
        """Drop all outdated entries.

        Otherwise jobs that are restarted often would leave thousands of entries for ends in the far future.
        """
        self._heap = [entry for entry in self._heap if entry[2] == entry[3].version]
        heapq.heapify(self._heap)
        self._room = 2 * len(self._heap) + ROOM

    def next_s(self) -> float:
        """Return the time at which the next job ends; infinite if no job runs."""
        heap = self._heap
        while heap and heap[0][2] != heap[0][3].version:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop(self) -> list[JobState]:
        """Remove and return all jobs whose predicted end is the earliest one."""
        end_s = self.next_s()
        ending: list[JobState] = []
        while self.next_s() == end_s:
            ending.append(heapq.heappop(self._heap)[3])
        return ending


# ---------------------------------------------------------------------------
# Detect a simulation that makes no progress.


DECISIONS = 2_000
"""Number of decisions in a row, without an arrival or an end, after which progress is checked."""

LEAST_SPEED = 1e-3
"""Minimum progress, in seconds of work per second. Even jobs that share GPUs have a hundred times more."""

LEAST_PART = 1e-9
"""Minimum progress in `DECISIONS` decisions, as a fraction of the remaining work. With less, all work would
take more than 10¹² decisions."""


class ProgressWatch:
    """Counter of decisions; raises Stuck if many decisions in a row bring no progress."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._decisions = 0
        self._since_s = 0.0
        self._left_s = math.inf

    def record(self, now_s: float, jobs: Iterable[JobState], *, moved: bool) -> None:
        """Record a decision; `moved` says whether a job has arrived or ended since the last decision.

        Raises Stuck, naming policy, time and jobs, if jobs make no progress.
        """
        self._decisions = 0 if moved else self._decisions + 1
        if not self._decisions or self._decisions % DECISIONS:  # so that it costs nothing where things happen
            return
        unfinished = list(jobs)
        left_s = math.fsum(job.remaining_s(now_s) for job in unfinished)
        work_s, elapsed_s = self._left_s - left_s, now_s - self._since_s
        second = self._decisions > DECISIONS
        if second and unfinished and work_s <= max(LEAST_SPEED * elapsed_s, LEAST_PART * left_s):
            raise Stuck(
                f"{self._policy} makes no progress: asked {DECISIONS:,} times from {self._since_s:,.0f} s to"
                f" {now_s:,.0f} s, while {named(unfinished)}; they have {left_s:,.0f} s of work left."
                " Do starts cost more (restart_s) than the turns that jobs are given?"
            )
        self._since_s, self._left_s = now_s, left_s


def named(jobs: Iterable[JobState]) -> str:
    """Return a phrase with the number of jobs that wait and the names of the first five."""
    names = [job.spec.name for job in jobs]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{len(names)} jobs wait: {shown}"


@dataclass(frozen=True, slots=True)
class PolicyRun(Setup):
    """A setup (a new policy, its speed model and its interval) that can be simulated.

    Replicas of published simulators advance time differently, so they override `run`. A family may return a
    `PolicyRun` instead of a `Setup`.
    """

    @classmethod
    def of(cls, setup: Setup) -> PolicyRun:
        """Convert a setup to a `PolicyRun`; return it unchanged if it is one."""
        if isinstance(setup, PolicyRun):
            return setup
        return PolicyRun(setup.policy, setup.speed, setup.interval_s)

    def run(
        self,
        specs: Sequence[Submission],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> SimulationResult:
        """Simulate `specs` on `cluster` until the last job has ended.

        Args:
            specs: The jobs.
            cluster: The servers.
            detail: Whether to record utilisation per resource and the blocking index over time.
            verify: Whether to check every decision (no GPU twice, no job twice, only unfinished jobs).
            progress: Function that is called from time to time with the number of ended jobs and of all jobs.

        Raises BadSpec for a negative interval, a job larger than the cluster or two jobs of one name,
        BadDecision for errors that `verify` finds, and Stuck if jobs wait for ever or make no progress.
        """
        submissions = [Submitted(spec.arrival_s, spec) for spec in admitted(specs, cluster)]
        return EventLoop(submissions, cluster, self, detail=detail, verify=verify).run(progress)


def simulate(
    specs: Iterable[Submission],
    cluster: Cluster,
    policy: Policy,
    speed: SpeedModel,
    *,
    interval_s: float = 0.0,
    detail: bool = False,
    verify: bool = False,
) -> SimulationResult:
    """Simulate `specs` on `cluster` under a new policy; see `PolicyRun.run`.

    The policy decides only if something has changed: at the next multiple of `interval_s`, or at once if that
    is 0.
    """
    return PolicyRun(policy, speed, interval_s).run([*specs], cluster, detail=detail, verify=verify)


class EventLoop:
    """Simulation of time for a core: reports arrivals and ends of jobs until all jobs have ended.

    Args:
        submissions: The jobs, in order of arrival.
        cluster: The servers as the scheduling policy sees them.
        setup: The policy, the speed model (a `ContendedSpeed` if jobs contend) and the decision interval.
        allocation: Servers, trees and slots of running jobs; None: there is no network.
        detail: Whether to record curves over time, too.
        verify: Whether to check every decision of the policy.
    """

    def __init__(
        self,
        submissions: Sequence[Submitted],
        cluster: Cluster,
        setup: Setup,
        *,
        allocation: Allocation | None = None,
        detail: bool = False,
        verify: bool = False,
    ) -> None:
        self._coming = submissions
        self._policy = setup.policy
        self._speed = setup.speed if isinstance(setup.speed, ContendedSpeed) else None
        self._ends = EndQueue()
        rules = Rules(verify=verify)
        self.core = Core(cluster, setup, allocation=allocation, rules=rules, foreseen=self._ends.push)
        self._recorder = RunRecorder(cluster, detail=detail)
        self._watch = ProgressWatch(setup.policy.name)
        self._position = self._seen = 0

    def run(self, progress: Callable[[int, int], None] | None = None) -> SimulationResult:
        """Run until the last job has ended. Raises Stuck if jobs wait for ever or make no progress.

        `progress` is called from time to time with the number of ended jobs and of all jobs.
        """
        core, ends, speed = self.core, self._ends, self._speed
        jobs, running = core.jobs, core.running
        total, next_s = len(self._coming), self._next_s()
        moved = stirred = False
        while self._seen < total:
            end_s = ends.next_s()
            now_s = min(next_s, end_s, core.next_s)
            if now_s == math.inf:
                raise stuck(self._policy, jobs, core.now_s)
            stirred = stirred or end_s <= now_s
            if end_s <= now_s:
                for job in ends.pop():
                    core.ended(now_s, job.spec.name)
                moved = True
            if next_s <= now_s:
                next_s = self._notify(now_s)
                moved = True
            if core.next_s <= now_s:
                if core.tick(now_s):
                    self._watch.record(now_s, jobs.values(), moved=moved)
                    self._recorder.decided(now_s, running.groups, jobs, len(running.jobs), running.held_gpus)
                    moved = False
                stirred = True
            if stirred and speed is not None and core.next_s > now_s:
                for job, iteration_s in speed.contend(now_s):
                    core.handle(Progressed(now_s, job.spec.name, iteration_s=iteration_s))
                stirred = False
            if len(core.finished_jobs) > self._seen:
                moved = True
                self._record()
                if progress is not None:
                    progress(self._seen, total)
        self._recorder.close()
        return self._recorder.result(self._policy.name)

    def _next_s(self) -> float:
        """Return the time at which the next job arrives; infinite after the last arrival."""
        return self._coming[self._position].at_s if self._position < len(self._coming) else math.inf

    def _notify(self, now_s: float) -> float:
        """Report the arrivals until `now_s` to the core; return the time of the next arrival."""
        while (next_s := self._next_s()) <= now_s:
            self.core.handle(self._coming[self._position])
            self._position += 1
        return next_s

    def _record(self) -> None:
        """Record the jobs that have ended."""
        over = self.core.finished_jobs
        while self._seen < len(over):
            each = over[self._seen]
            self._recorder.ended(each.job, completed=each.outcome == "completed")
            self._seen += 1


def admitted(specs: Iterable[Submission], cluster: Cluster) -> list[Submission]:
    """Return the jobs in order of submission.

    Raises BadSpec for a job that is too large for the cluster, or two jobs of one name.
    """
    queue = list(specs)
    known: set[str] = set()
    for spec in queue:
        cluster.check_room(spec.name, spec.gpus)
        if spec.name in known:
            raise BadSpec(f"two jobs are called {spec.name!r}")
        known.add(spec.name)
    return sorted(queue, key=lambda spec: spec.arrival_s)  # stable: file order breaks ties


def stuck(policy: Policy, jobs: Mapping[str, JobState], now_s: float) -> Stuck:
    """Return the error that names the jobs that wait for ever."""
    waiting = named(jobs.values())
    return Stuck(f"{policy.name} runs nothing at {now_s:,.0f} s and asks for no later time, while {waiting}")
