"""Baselines that consist of a rank only, as functions that make a fresh policy."""

from __future__ import annotations

from functools import partial

from controller.policies.scheduling.beliefs import TRUTH, Told
from controller.policies.scheduling.policy import JobState
from controller.policies.scheduling.ranked import Moves, Ranked


def _told_s(job: JobState) -> float:
    """Return the duration that the job states, or, if it states none, its real one."""
    told = job.spec.estimate_s
    return job.spec.iterations * job.alone_s if told is None else told


def fifo(*, backfill: bool = False) -> Ranked:
    """Return first in, first out: the head of the queue blocks the jobs behind it, unless `backfill`."""
    name = "fifo-backfill" if backfill else "fifo"
    return Ranked(name, _order, moves=Moves.NEVER, backfill=backfill)


def sjf(told: Told = TRUTH) -> Ranked:
    """Return shortest job first, not preemptive, durations known."""
    return Ranked("sjf", told.remaining_s, moves=Moves.NEVER)


def srtf(told: Told = TRUTH) -> Ranked:
    """Return shortest remaining time first."""
    return Ranked("srtf", told.remaining_s, moves=Moves.PREEMPT)


def srsf(told: Told = TRUTH) -> Ranked:
    """Return shortest remaining service (time x GPUs) first (Tiresias, NSDI'19)."""
    return Ranked("srsf", partial(_remaining_service_s, told), moves=Moves.PREEMPT)


def las(*, quantum_s: float = 360.0) -> Ranked:
    """Return least attained service first, service counted in time; ties go to the earlier."""
    return Ranked("las", _attained_s, moves=Moves.PREEMPT, quantum_s=quantum_s)


def las_2d(*, quantum_s: float = 360.0) -> Ranked:
    """Return least attained service first, service counted in time x GPUs, continuous."""
    return Ranked("2d-las", _attained_service_s, moves=Moves.PREEMPT, quantum_s=quantum_s)


def qssf() -> Ranked:
    """Return quasi-shortest service first (Helios, SC'21): predicted duration x GPUs, not preemptive."""
    return Ranked("qssf", _told_service_s, moves=Moves.NEVER)


# Named functions, and not lambdas: a policy can be copied with its state, also to a file.


def _order(job: JobState, now_s: float) -> float:
    return job.order


def _remaining_service_s(told: Told, job: JobState, now_s: float) -> float:
    return told.remaining_s(job, now_s) * job.spec.gpus


def _attained_s(job: JobState, now_s: float) -> float:
    return job.attained_s(now_s)


def _attained_service_s(job: JobState, now_s: float) -> float:
    return job.attained_s(now_s) * job.spec.gpus


def _told_service_s(job: JobState, now_s: float) -> float:
    return _told_s(job) * job.spec.gpus
