"""The scheduling interval, after which jobs may be preempted again, from the load.

The patent names the inputs (the cluster's GPUs TCG, all GPUs asked for TRG, the jobs within one node and
beyond one with their costs of a preemption m1 and m2); its formula is lost. This one is ours. Short
intervals lose work: each boundary costs ``c = (n1 m1 + n2 m2) / (n1 + n2)``, the mean over all jobs. Long
ones delay jobs of higher priority, by half an interval on average. If one such delay occurs every ``horizon``
seconds, both together take the fraction ``c / SI + SI / (2 horizon)`` of the time, which is least at
``SI = sqrt(2 c horizon)``: Young's (1974) interval for checkpoints. The more the demand exceeds the GPUs
there are, the more GPUs change hands at a boundary, so c is multiplied by that ratio, up to a limit:

    SI = sqrt( 2 c horizon min(limit, max(1, TRG / TCG)) )

By ablation (docs/results/sharing.md) the load's part gains nothing; a limit of 1 leaves it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from controller.policies.scheduling.errors import BadSpec


@dataclass(frozen=True, slots=True)
class PreemptionCost:
    """Cost of stopping and restarting a job, in seconds of its time.

    Attributes:
        within_s: A job that fits into one node, the patent's m1. The default is what Lucid's simulator takes.
        beyond_s: A larger one, the patent's m2.
        node_gpus: GPUs of a node.
    """

    within_s: float = 40.0
    beyond_s: float = 60.0
    node_gpus: int = 8

    def __post_init__(self) -> None:
        if not all(value >= 0 and math.isfinite(value) for value in (self.within_s, self.beyond_s)):
            raise BadSpec(
                f"preemptions cost {self.within_s} s and {self.beyond_s} s; neither may be negative"
            )
        if self.node_gpus < 1:
            raise BadSpec(f"nodes of {self.node_gpus} GPUs; at least 1 is needed")

    def of(self, gpus: int) -> float:
        """Return the cost in seconds for a job with this number of GPUs."""
        return self.within_s if gpus <= self.node_gpus else self.beyond_s


USUAL_COST = PreemptionCost()


@dataclass(frozen=True, slots=True)
class IntervalRule:
    """The rule of the module's docstring.

    Attributes:
        cost: m1 and m2.
        horizon_s: How often a job has to wait for a boundary.
        limit: The load above which the interval does not grow further.
        least_s: Shortest interval, even if preemptions are free.
    """

    cost: PreemptionCost = USUAL_COST
    horizon_s: float = 8000.0
    limit: float = 4.0
    least_s: float = 60.0

    def __post_init__(self) -> None:
        if not (self.horizon_s > 0 and math.isfinite(self.horizon_s)):
            raise BadSpec(f"a horizon of {self.horizon_s} s; it must be positive")
        if not (self.limit >= 1 and math.isfinite(self.limit)):
            raise BadSpec(f"a load of at most {self.limit}; the limit must be at least 1")
        if not (self.least_s > 0 and math.isfinite(self.least_s)):
            raise BadSpec(f"a shortest interval of {self.least_s} s; it must be positive")

    def interval_s(self, asked: Iterable[int], cluster_gpus: int) -> float:
        """Return SI in seconds; `asked` has the GPUs that each job asks for. O(jobs).

        >>> rule = IntervalRule(PreemptionCost(40, 60, node_gpus=8))
        >>> rule.interval_s([8, 8], 64), rule.interval_s([8] * 32, 64)
        (800.0, 1600.0)
        """
        sizes = list(asked)
        jobs = max(1, len(sizes))
        mean_s = math.fsum(self.cost.of(gpus) for gpus in sizes or (1,)) / jobs
        load = min(self.limit, max(1.0, sum(sizes) / cluster_gpus))
        return max(self.least_s, math.sqrt(2.0 * mean_s * self.horizon_s * load))


BY_LOAD = IntervalRule()


@dataclass(frozen=True, slots=True)
class FixedInterval:
    """A constant interval, to compare the rule with."""

    length_s: float

    def __post_init__(self) -> None:
        if not (self.length_s > 0 and math.isfinite(self.length_s)):
            raise BadSpec(f"an interval of {self.length_s} s; it must be positive")

    def interval_s(self, asked: Iterable[int], cluster_gpus: int) -> float:
        """Return the interval."""
        return self.length_s
