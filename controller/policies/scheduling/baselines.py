"""Baseline policies that consist of a rank only, as functions that return a new policy."""

from __future__ import annotations

from functools import partial

from controller.policies.scheduling.policy import JobState
from controller.policies.scheduling.ranked import EXACT, DurationEstimates, Preemption, RankedPolicy


def fifo(*, backfill: bool = False) -> RankedPolicy:
    """Return the policy first in, first out; with `backfill`, later jobs that fit may overtake others."""
    name = "fifo-backfill" if backfill else "fifo"
    return RankedPolicy(name, _order, moves=Preemption.NEVER, backfill=backfill)


def sjf(estimates: DurationEstimates = EXACT) -> RankedPolicy:
    """Return the policy shortest job first: not preemptive, by known durations."""
    return RankedPolicy("sjf", estimates.remaining_s, moves=Preemption.NEVER)


def srtf(estimates: DurationEstimates = EXACT) -> RankedPolicy:
    """Return the policy shortest remaining time first: preemptive, by known durations."""
    return RankedPolicy("srtf", estimates.remaining_s, moves=Preemption.PREEMPT)


def srsf(estimates: DurationEstimates = EXACT) -> RankedPolicy:
    """Return the policy shortest remaining service (time x GPUs) first, preemptive (Tiresias, NSDI'19)."""
    return RankedPolicy("srsf", partial(_remaining_service_s, estimates), moves=Preemption.PREEMPT)


def las(*, quantum_s: float = 360.0) -> RankedPolicy:
    """Return the policy least attained service (time) first, preemptive.

    Of jobs with equal service, the job that arrived earlier comes first.
    """
    return RankedPolicy("las", _attained_s, moves=Preemption.PREEMPT, quantum_s=quantum_s)


def las_2d(*, quantum_s: float = 360.0) -> RankedPolicy:
    """Return the policy least attained service (time x GPUs) first: preemptive, with one queue."""
    return RankedPolicy("2d-las", _attained_service_s, moves=Preemption.PREEMPT, quantum_s=quantum_s)


def qssf() -> RankedPolicy:
    """Return the policy quasi-shortest service first, by predicted duration x GPUs (Helios, SC'21).

    It is not preemptive.
    """
    return RankedPolicy("qssf", _estimated_service_s, moves=Preemption.NEVER)


# Named functions, and not lambdas: a policy can be copied with its state, also to a file.


def _order(job: JobState, now_s: float) -> float:
    return job.order


def _remaining_service_s(estimates: DurationEstimates, job: JobState, now_s: float) -> float:
    return estimates.remaining_s(job, now_s) * job.spec.gpus


def _attained_s(job: JobState, now_s: float) -> float:
    return job.attained_s(now_s)


def _attained_service_s(job: JobState, now_s: float) -> float:
    return job.attained_s(now_s) * job.spec.gpus


def _estimated_service_s(job: JobState, now_s: float) -> float:
    estimate_s = job.spec.estimate_s  # without an estimate, the real duration counts
    return (job.spec.iterations * job.alone_s if estimate_s is None else estimate_s) * job.spec.gpus
