"""The policies of a service, as names and settings.

The policies are read from a file; the core is made from the policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from controller.core import Core, Log, Rules
from controller.policies.memory.regions import READINGS
from controller.policies.scheduling.policy import SCHEDULER, Setup
from controller.policies.settings import JOINT, SIMPLE, AllocationSettings, default_for
from controller.vocabulary import BadSpec, Cluster, Topology, documents

if TYPE_CHECKING:
    from controller.core.events import Changes

SHARING = 4
"""Maximum number of jobs that may take turns on a GPU."""

_NAME = documents.name


def _numbers(value: Any) -> str | None:
    number = documents.number(0, 1e12)
    if isinstance(value, dict) and all(number(each) is None for each in value.values()):
        return None
    return "want a table of numbers, such as { quantum_s = 60 }"


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
    "settings": _numbers,
}
"""Keys of a policies file, with the function that checks the value."""
_OWN: tuple[str, ...] = ("scheduler", "interval_s", "retries", "settings")
"""Keys of a policies file that do not belong to `AllocationSettings`."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of scheduling, placement, routing and memory, and their settings. Raises BadSpec.

    Attributes:
        scheduler: Name of the scheduling policy.
        allocation: Policies of placement, routing and memory; None: jobs get GPUs, but no switches.
        interval_s: Interval, in s, at which the scheduler decides; 0: after each event.
        retries: Maximum number of times that a failed job returns to the queue.
        settings: Names and values of the scheduling policy's settings that differ from its defaults.
    """

    scheduler: str = "fifo"
    allocation: AllocationSettings | None = field(default_factory=AllocationSettings)
    interval_s: float = 0.0
    retries: int = 0
    settings: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.interval_s < 1e9:
            raise BadSpec(f"interval_s = {self.interval_s:g}: want seconds from 0 to below 1e9")

    @classmethod
    def by_default(
        cls,
        servers: int,
        named: Mapping[str, str],
        around: AllocationSettings = AllocationSettings(),  # noqa: B008 - it is frozen
        **own: Any,
    ) -> Self:
        """Return the policies in `named`, and the default policies of a cluster for all other kinds.

        Args:
            servers: Number of the cluster's servers.
            named: Names of policies by kind, such as "scheduler".
            around: Settings of placement, routing and memory other than the policies' names.
            **own: Values of `interval_s` and `retries`.
        """
        usual = default_for(servers, named.get("scheduler"), named.get("placement"))
        chosen = {**asdict(usual), **named}
        return cls(chosen.pop("scheduler"), replace(around, **chosen), **own)

    def core(self, cluster: Topology) -> Core:
        """Return a new core that decides by these policies. Raises BadSpec for unknown names."""
        from controller.core.compose import network_policies  # a service of one command has its own policies
        from controller.policies import registry
        from controller.policies.family import SimulationConfig

        self._check_settings()
        servers, allocation = self.servers(cluster), None
        if self.allocation is None:
            setup = registry.make(self.scheduler, SimulationConfig(servers, settings=self.settings))
        else:
            made = network_policies(cluster, self.scheduler, self.allocation, self.settings)
            setup, allocation = made.setup, made.allocation
        return Core(servers, self._with_interval(setup), allocation=allocation, rules=self._rules, log=Log())

    def servers(self, cluster: Topology) -> Cluster:
        """Return the servers of a cluster in the form that the scheduling policy gets."""
        if self.allocation is None:
            return Cluster.of(cluster)
        from controller.core.compose import servers_of

        return servers_of(cluster, self.allocation)

    def take_over(self, core: Core) -> None:
        """Make `core` decide by these policies from now on; `core` must allocate switches.

        Raises the errors of the method `core` and of `Core.decide_by`.
        """
        from controller.core.compose import servers_of, setup_of
        from controller.policies.registry import policies_of

        allocation = self._of_network()
        self._check_settings()
        assert core.allocation is not None
        servers = core.servers
        if core.allocation.own_places != (allocation.placement == SCHEDULER):
            servers = servers_of(core.allocation.allocator.whole, allocation)
        setup = self._with_interval(setup_of(servers, self.scheduler, allocation, self.settings))
        core.decide_by(setup, policies_of(allocation), allocation, self._rules, servers)

    def change_cluster(self, core: Core, cluster: Topology) -> Changes:
        """Replace the cluster of `core`, which decides by these policies; return the changes.

        `core` must allocate switches.

        Raises the errors of `controller.core.compose.keep_gpu_numbers` and `Core.change_cluster`.
        """
        from controller.core.compose import keep_gpu_numbers, servers_of, setup_of

        allocation = self._of_network()
        servers = keep_gpu_numbers(core.servers, servers_of(cluster, allocation))
        setup = self._with_interval(setup_of(servers, self.scheduler, allocation, self.settings))
        return core.change_cluster(cluster, servers, setup)

    def _of_network(self) -> AllocationSettings:
        if self.allocation is None:
            raise BadSpec("a service with switches needs policies for placement, routing and memory")
        return self.allocation

    def _check_settings(self) -> None:
        if self.settings:
            from controller.policies import registry

            registry.check_known(self.scheduler)
            registry.check_settings(self.settings, [self.scheduler])

    def _with_interval(self, setup: Setup) -> Setup:
        return replace(setup, interval_s=self.interval_s)

    @property
    def _rules(self) -> Rules:
        return Rules(reported=True, sharing=SHARING, retries=self.retries, tolerates_failures=True)

    @property
    def names(self) -> dict[str, str]:
        """Names of the policies, by kind: "scheduler", "placement" and so on."""
        return {"scheduler": self.scheduler, **(self.allocation.names if self.allocation else {})}


def read_policies(path: Path, defaults: Policies) -> Policies:
    """Return the policies in a file; for keys that the file lacks, use the values of `defaults`.

    A file looks like this, in TOML, JSON or YAML::

        scheduler = "fifo-backfill"
        memory = "deadline-lazy"
        period_s = 30

        [settings]      # of the scheduler; 'ina schedule policies --all' lists them
        restart_scale = 0.5

    Further keys are placement, routing, reading, margin, interval_s and retries. Raises BadSpec.
    """
    document = documents.read(path)
    for key, value in document.data.items():
        if key not in _KEYS:
            raise document.error((key,), f"{key}: {documents.hint(key, _KEYS)}")
        if wanted := _KEYS[key](value):
            raise document.error((key,), f"{key} = {documents.shown(value)}: {wanted}")
    given = dict(document.data)
    own = {key: given.pop(key) for key in _OWN if key in given}
    if "settings" in own:
        own["settings"] = tuple(own["settings"].items())
    assert defaults.allocation is not None
    if "scheduler" in own:  # other keys depend on it, as with the option
        together = own["scheduler"] == JOINT.scheduler
        before, after = (SIMPLE, JOINT) if together else (JOINT, SIMPLE)
        if together or defaults.allocation.placement == before.placement:
            given.setdefault("placement", after.placement)
        if defaults.allocation.routing == before.routing:
            given.setdefault("routing", after.routing)
    found = replace(defaults, allocation=replace(defaults.allocation, **given), **own)
    try:
        found._check_settings()
    except BadSpec as error:
        raise document.error(("settings",), str(error)) from error
    return found
