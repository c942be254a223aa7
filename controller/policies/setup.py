"""A scheduling policy with its speed model and decision interval."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.policies.scheduling.policy import Policy, SpeedModel


@dataclass(frozen=True, slots=True)
class Setup:
    """A fresh policy with its speed model and decision interval.

    Attributes:
        policy: The policy; belongs to one run.
        speed: Predicts how fast jobs run.
        interval_s: The policy decides only at multiples of this; 0: at any time.
        places: The policy chooses the servers of jobs on a network, too: no other may place them.
    """

    policy: Policy
    speed: SpeedModel
    interval_s: float = 0.0
    places: bool = field(default=False, kw_only=True)
