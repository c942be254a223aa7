"""A policy with its simulation's conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.policies.family import Setup
from controller.policies.scheduling.model import Submission
from controller.simulator.engine import simulate
from controller.simulator.record import Result
from controller.vocabulary import Cluster


@dataclass(frozen=True, slots=True)
class PolicyRun(Setup):
    """A fresh policy with its simulation's conditions.

    Replicas of published simulators, in which time advances differently, override `run`: a family may return
    such a run instead of a `Setup`.
    """

    @classmethod
    def of(cls, setup: Setup) -> PolicyRun:
        """Return the run of a setup: itself, if it is one."""
        if isinstance(setup, PolicyRun):
            return setup
        return PolicyRun(setup.policy, setup.speed, setup.interval_s)

    def run(
        self,
        specs: Sequence[Submission],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Result:
        """Simulate `specs` on `cluster`; for arguments and errors see `controller.simulator.simulate`."""
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
