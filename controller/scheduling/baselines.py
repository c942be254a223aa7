"""Baselines that consist of a rank only, as functions that make a fresh policy."""

from __future__ import annotations

from controller.scheduling.policy import JobState
from controller.scheduling.ranked import Moves, Ranked
from controller.scheduling.told import TRUTH, Told


def _told_s(job: JobState) -> float:
    """Return how long the job says that it runs, or, if it says nothing, how long it does."""
    told = job.spec.estimate_s
    return job.spec.iterations * job.alone_s if told is None else told


def fifo(*, backfill: bool = False) -> Ranked:
    """Return first in, first out: the head of the queue blocks the jobs behind it, unless `backfill`."""
    name = "fifo-backfill" if backfill else "fifo"
    return Ranked(name, lambda job, now_s: job.order, moves=Moves.NEVER, backfill=backfill)


def sjf(told: Told = TRUTH) -> Ranked:
    """Return shortest job first, not preemptive, durations known."""
    return Ranked("sjf", told.remaining_s, moves=Moves.NEVER)


def srtf(told: Told = TRUTH) -> Ranked:
    """Return shortest remaining time first."""
    return Ranked("srtf", told.remaining_s, moves=Moves.PREEMPT)


def srsf(told: Told = TRUTH) -> Ranked:
    """Return shortest remaining service (time x GPUs) first (Tiresias, NSDI'19)."""
    return Ranked(
        "srsf", lambda job, now_s: told.remaining_s(job, now_s) * job.spec.gpus, moves=Moves.PREEMPT
    )


def las(*, quantum_s: float = 360.0) -> Ranked:
    """Return least attained service first, service counted in time; ties go to the earlier."""
    return Ranked("las", lambda job, now_s: job.attained_s(now_s), moves=Moves.PREEMPT, quantum_s=quantum_s)


def las_2d(*, quantum_s: float = 360.0) -> Ranked:
    """Return least attained service first, service counted in time x GPUs, continuous."""
    return Ranked(
        "2d-las",
        lambda job, now_s: job.attained_s(now_s) * job.spec.gpus,
        moves=Moves.PREEMPT,
        quantum_s=quantum_s,
    )


def qssf() -> Ranked:
    """Return quasi-shortest service first (Helios, SC'21): predicted duration x GPUs, not preemptive."""
    return Ranked("qssf", lambda job, now_s: _told_s(job) * job.spec.gpus, moves=Moves.NEVER)
