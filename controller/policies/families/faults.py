"""``faults:POLICY``: servers that fail and recover, jobs that are cancelled; the plain speed model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.policies.families.base import Family, Setting, SimulationConfig, resolve_settings
from controller.policies.scheduling import baselines
from controller.policies.scheduling.faults import Faults, Faulty, Outages, settings_of
from controller.policies.scheduling.healthy import Healthy
from controller.policies.scheduling.policy import Policy
from controller.policies.scheduling.speed import Exclusive
from controller.policies.scheduling.tiresias import Tiresias
from controller.policies.setup import Setup

POLICIES: Mapping[str, tuple[str, Callable[[Outages], Policy]]] = {
    "fifo-backfill": (
        "first in, first out; waits for servers that are down",
        lambda o: baselines.fifo(backfill=True),
    ),
    "srsf": ("shortest remaining service first; waits for servers that are down", lambda o: baselines.srsf()),
    "tiresias": ("attained service in a few queues; waits for servers that are down", lambda o: Tiresias()),
    "evacuate": ("srsf whose jobs leave servers that are down", lambda o: Healthy(o, wary=False)),
    "healthy": ("the same, and servers that have failed least come first; ours", lambda o: Healthy(o)),
}

SETTINGS = {
    "mtbf_h": Setting("mean time between failures of a server, hours; 0: none", 100.0, 0.0, 1e9),
    "repair_s": Setting("how long a server is down", 3600.0, 1.0, 1e9),
    "checkpoint_s": Setting("jobs save their work so often", 1800.0, 1.0, 1e9),
    "cancelled": Setting("part of the jobs that are cancelled as they run", 0.1, 0.0, 1.0),
    "restart_scale": Setting("factor on the cost of restarts", 1.0, 0.0, 1e6),
}


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval."""
    chosen = resolve_settings(SETTINGS, config)
    faults: Faults = settings_of(chosen, config.seed)
    nodes = len(config.cluster.servers)
    speed = Faulty(Exclusive(chosen["restart_scale"]), config.cluster, faults, Outages(faults, nodes))
    return Setup(POLICIES[name][1](Outages(faults, nodes)), speed)


FAMILY = Family(
    "servers fail and jobs are cancelled, by seed",
    {name: about for name, (about, _) in POLICIES.items()},
    make,
    settings=SETTINGS,
    main=("healthy",),
)
