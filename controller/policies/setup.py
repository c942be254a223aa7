"""A scheduling policy and what it is asked with."""

from __future__ import annotations

from dataclasses import dataclass

from controller.scheduling.policy import Policy, SpeedModel


@dataclass(frozen=True, slots=True)
class Setup:
    """A fresh policy and what it is asked with.

    Attributes:
        policy: The policy; belongs to one run.
        speed: How fast jobs run, as far as it can be foreseen.
        interval_s: The policy is asked at multiples of this only; 0: at once.
    """

    policy: Policy
    speed: SpeedModel
    interval_s: float = 0.0
