"""The policies of a service by their names, and the core that they make."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from controller.core import Core, Log, Rules
from controller.core.compose import networked
from controller.policies.by_kind import AllocationSettings
from controller.vocabulary import Topology

SHARING = 4
"""Jobs that may take turns on a GPU."""


@dataclass(frozen=True, slots=True)
class Policies:
    """Who decides: scheduler, and placement, routing and memory.

    Attributes:
        scheduler: Name of the scheduling policy.
        allocation: The others, and how they are asked.
        interval_s: Interval at which the scheduler is asked; 0: whenever something happens.
        retries: How often a job that fails goes back to the queue.
    """

    scheduler: str = "fifo"
    allocation: AllocationSettings = field(default_factory=AllocationSettings)
    interval_s: float = 0.0
    retries: int = 0

    def core(self, cluster: Topology) -> Core:
        """Return a fresh core. Raises BadSpec for names that nobody has."""
        made = networked(cluster, self.scheduler, self.allocation)
        return Core(
            made.servers,
            replace(made.setup, interval_s=self.interval_s),
            allocation=made.allocation,
            rules=Rules(reported=True, sharing=SHARING, retries=self.retries),
            log=Log(),
        )

    @property
    def names(self) -> dict[str, str]:
        """The policies by kind."""
        return {"scheduler": self.scheduler, **self.allocation.names}
