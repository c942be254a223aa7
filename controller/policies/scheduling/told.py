"""Durations as told to policies that know them: the truth, or the truth times an error."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.policy import JobState

Remaining = Callable[[JobState, float], float]
"""Returns the seconds that a job is said to run on, at a time."""


@dataclass(frozen=True, slots=True)
class Told:
    """The durations that policies are told: a job's remaining time times a lognormal factor, fixed per job.

    `error` is the standard deviation of the factor's logarithm: with 0.5, two jobs of three are within a
    factor of 1.65. Raises BadSpec if it is negative.
    """

    error: float = 0.0
    seed: int = 0
    _factors: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.error >= 0 and math.isfinite(self.error)):
            raise BadSpec(f"an error of estimates of {self.error}; it must not be negative")

    def remaining_s(self, job: JobState, now_s: float) -> float:
        """Return the told remaining run time alone, in seconds."""
        left_s = job.iterations_left(now_s) * job.alone_s
        return left_s * self._factor(job.spec.name) if self.error else left_s

    def _factor(self, name: str) -> float:
        if name not in self._factors:
            self._factors[name] = random.Random(f"{self.seed} {name}").lognormvariate(0.0, self.error)
        return self._factors[name]


TRUTH = Told()
