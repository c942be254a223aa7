"""A policy and what it is simulated under."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.scheduling.model import Submission
from controller.scheduling.policy import Policy, SpeedModel
from controller.simulator.engine import simulate
from controller.simulator.record import Result
from controller.vocabulary import Cluster


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """A fresh policy and what it is simulated under.

    Replicas of published simulators, whose time goes differently, override `run`
    (`controller.simulator.replicas`).

    Attributes:
        policy: The policy; belongs to one run.
        speed: How fast jobs run.
        interval_s: The policy is asked at multiples of this only; 0: at once.
    """

    policy: Policy
    speed: SpeedModel
    interval_s: float = 0.0

    def run(
        self,
        specs: Sequence[Submission],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Result:
        """Simulate `specs` on `cluster`. Options and errors are those of `controller.simulator.simulate`."""
        return simulate(
            specs,
            cluster,
            self.policy,
            self.speed,
            interval_s=self.interval_s,
            detail=detail,
            verify=verify,
            progress=progress,
        )
