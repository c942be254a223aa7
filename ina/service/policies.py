"""The policies of a service by their names: read from a file, kept as plain data, made into a core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from controller.core import Core, Log, Rules
from controller.core.compose import Networked, networked
from controller.errors import BadSpec
from controller.memory.demand import READINGS
from controller.policies.by_kind import AllocationSettings, policies_of
from controller.vocabulary import Topology, documents

SHARING = 4
"""Jobs that may take turns on a GPU."""

_NAME = documents.name
_KEYS: Mapping[str, documents.Check] = {
    "scheduler": _NAME,
    "placement": _NAME,
    "routing": _NAME,
    "memory": _NAME,
    "reading": documents.one_of(READINGS),
    "period_s": documents.number(0, 1e9, "seconds"),
    "margin": documents.number(0, 0.99),
    "interval_s": documents.number(0, 1e9, "seconds"),
    "retries": documents.whole(0, 1 << 20),
}
"""Keys of a policy file, and what each takes."""


@dataclass(frozen=True, slots=True)
class Policies:
    """Who decides: scheduler, and placement, routing and memory. Raises BadSpec.

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

    def __post_init__(self) -> None:
        if not 0 <= self.interval_s < 1e9:
            raise BadSpec(f"interval_s = {self.interval_s:g}: want 0 or more seconds")

    def core(self, cluster: Topology) -> Core:
        """Return a fresh core. Raises BadSpec for names that nobody has."""
        made = self._made(cluster)
        return Core(
            made.servers,
            replace(made.setup, interval_s=self.interval_s),
            allocation=made.allocation,
            rules=self._rules,
            log=Log(),
        )

    def take_over(self, core: Core, cluster: Topology) -> None:
        """Have a core decide by these policies from now on. Raises as `core` and `Core.decide_by`."""
        setup = replace(self._made(cluster).setup, interval_s=self.interval_s)
        core.decide_by(setup, policies_of(self.allocation), self.allocation, self._rules)

    def _made(self, cluster: Topology) -> Networked:
        return networked(cluster, self.scheduler, self.allocation)

    @property
    def _rules(self) -> Rules:
        return Rules(reported=True, sharing=SHARING, retries=self.retries)

    @property
    def names(self) -> dict[str, str]:
        """The policies by kind."""
        return {"scheduler": self.scheduler, **self.allocation.names}

    def plain(self) -> dict[str, Any]:
        """Return them as numbers, strings and dicts."""
        return asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Policies:
        """Return the policies for which `plain` gave this."""
        return cls(**{**found, "allocation": AllocationSettings(**found["allocation"])})


def read_policies(path: Path, defaults: Policies) -> Policies:
    """Return the policies of a file; what it leaves out is as in `defaults`.

    A file looks like this, in TOML, JSON or YAML::

        scheduler = "fifo-backfill"
        memory = "deadline-lazy"
        period_s = 30

    Its other keys are placement, routing, reading, margin, interval_s and retries. Raises BadSpec.
    """
    document = documents.read(path)
    for key, value in document.data.items():
        if key not in _KEYS:
            raise document.error((key,), f"{key}: {documents.hint(key, _KEYS)}")
        if wanted := _KEYS[key](value):
            raise document.error((key,), f"{key} = {documents.shown(value)}: {wanted}")
    given = dict(document.data)
    own = {key: given.pop(key) for key in ("scheduler", "interval_s", "retries") if key in given}
    return replace(defaults, allocation=replace(defaults.allocation, **given), **own)
