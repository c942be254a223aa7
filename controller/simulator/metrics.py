"""Condense a simulation's result into the metrics that papers compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.simulator.record import Result


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of one simulation; times in seconds.

    Attributes:
        policy: The policy that was simulated.
        jobs: Number of jobs that ended.
        avg_jct_s: Mean completion time, from submission to end.
        median_jct_s: Median of the same.
        p99_jct_s: ``sorted[int(0.99 * n)]`` of the same, as the public simulators print it.
        makespan_s: When the last job ended, from the start of the trace.
        avg_wait_s: Mean time that a job waits, also between runs.
        avg_queue: Mean number of waiting jobs over time.
        gpu_busy: Fraction of all GPUs that were given to jobs, from the first arrival to the last end.
        restarts: Starts beyond the first, over all jobs.
        preemptions: Times that a running job was stopped.
        avg_slowdown: Mean of completion time over time alone.
        p99_slowdown: As `p99_jct_s`, of the same.
        fairness: Jain's index of the slowdowns' inverse, 1: all jobs are slowed down equally.
        decisions: Number of the policy's decisions.
        deadlines: Number of jobs with deadlines.
        deadlines_met: Number of these that met them.
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


def measure(result: Result) -> Metrics:
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
