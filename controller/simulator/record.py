"""Records of a simulation: the result of each job, a few integrals over time, and, on request, curves."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.policies.scheduling.policy import RESOURCES, Group, JobState, Submission
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
