"""Which two jobs may share their GPUs: lazy packing with a dynamic strategy (Lucid, 3.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.usage import Size, Usage


class Sharing(Enum):
    """The GPU sharing capacity (GSS): the limit on the sum of two jobs' sharing scores."""

    DEFAULT = 2
    APATHETIC = 1
    OFF = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """Properties of a job that the binder uses.

    `expected_s` is how long it is expected to run from now on; `unstable` says that its usage varies too
    much to rely on; `alone` that it must not share for another reason, such as having been evicted once.
    """

    gpus: int
    size: Size
    usage: Usage
    expected_s: float
    unstable: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True)
class BinderRules:
    """The binder's settings.

    Attributes:
        gpu_memory_mb: Memory of a GPU: two jobs have to fit.
        node_gpus: GPUs of a server: larger jobs are distributed and do not share.
        patience: A job joins only a partner that is expected to run for at least its own time divided by
            this, so that it does not leave its partner's GPUs blocked for long once that has ended.
        unstable_at: Coefficient of variation of the GPU utilisation from which a job counts as unstable.
    """

    gpu_memory_mb: float
    node_gpus: int
    patience: float = 2.0
    unstable_at: float = 0.5

    def __post_init__(self) -> None:
        values = self.gpu_memory_mb, self.node_gpus, self.patience, self.unstable_at
        if not all(math.isfinite(v) and v > 0 for v in values):
            raise BadSpec(f"{self}: all of these have to be positive")


class Refusal(Enum):
    """Reason for which a job may not join another one."""

    OFF = "sharing is off"
    GPUS = "they ask for different numbers of GPUs"
    DISTRIBUTED = "their GPUs are on more than one server"
    UNSTABLE = "the usage of one of them is unstable"
    ALONE = "one of them has to be alone"
    MEMORY = "their memory does not fit on a GPU"
    SCORE = "their sharing scores add up to more than the capacity"
    TIME = "the newcomer is expected to stay for much longer"


def refusal(newcomer: Candidate, partner: Candidate, sharing: Sharing, rules: BinderRules) -> Refusal | None:
    """Return the first reason why a job may not join a partner that runs alone; None: it may.

    Args:
        newcomer: The job that is to start.
        partner: The running job.
        sharing: The GPU sharing capacity.
        rules: The binder's settings.
    """
    if sharing.value is None:
        return Refusal.OFF
    if newcomer.gpus != partner.gpus:
        return Refusal.GPUS
    if newcomer.gpus > rules.node_gpus:
        return Refusal.DISTRIBUTED
    if newcomer.unstable or partner.unstable:
        return Refusal.UNSTABLE
    if newcomer.alone or partner.alone:
        return Refusal.ALONE
    if newcomer.usage.memory_mb + partner.usage.memory_mb >= rules.gpu_memory_mb:
        return Refusal.MEMORY
    if newcomer.size + partner.size > sharing.value:
        return Refusal.SCORE
    if newcomer.expected_s > partner.expected_s * rules.patience:
        return Refusal.TIME
    return None


def choose(
    newcomer: Candidate, partners: Sequence[Candidate], sharing: Sharing, rules: BinderRules
) -> int | None:
    """Return the position of the best partner; None if there is none.

    The best has the lowest score, then the longest expected run time, then the first position.

    Args:
        newcomer: The job that is to start.
        partners: The running jobs that it might join.
        sharing: The GPU sharing capacity.
        rules: The binder's settings.
    """
    best: tuple[int, float, int] | None = None
    for position, partner in enumerate(partners):
        if refusal(newcomer, partner, sharing, rules) is None:
            rank = (int(partner.size), -partner.expected_s, position)
            if best is None or rank < best:
                best = rank
    return None if best is None else best[2]


def strategy(*, now: float, forecast: Sequence[float], idle: float, low: float, very_low: float) -> Sharing:
    """Choose how much sharing pays (dynamic strategy).

    While few jobs arrive and few are forecast, slowing any of them down does not pay. Sharing is reduced only
    if the forecast does not rise above the threshold: further jobs would have to wait.

    Args:
        now: Jobs submitted lately, in the unit of the forecast.
        forecast: Jobs expected in the next intervals.
        idle: Fraction of idle GPUs.
        low: Up to this many jobs, apathetic sharing is enough.
        very_low: Up to this many jobs, and while GPUs are idle, no sharing is needed.
    """
    if not 0 <= very_low <= low or not 0 <= idle <= 1:
        raise BadSpec(
            f"thresholds {very_low} and {low}, {idle} idle; all from 0, in order, and idle at most 1"
        )
    most = max([now, *forecast])
    if most <= very_low and idle > 0:
        return Sharing.OFF
    return Sharing.APATHETIC if most <= low else Sharing.DEFAULT
