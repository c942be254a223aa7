"""Cores by the names of their policies."""

from __future__ import annotations

from dataclasses import dataclass

from controller.core.allocation import Allocation
from controller.core.allocator import Allocator
from controller.errors import BadSpec
from controller.policies import registry
from controller.policies.by_kind import AllocationSettings, policies_of
from controller.policies.family import Setup, SimulationConfig
from controller.policies.registry import SCHEDULER
from controller.vocabulary import Cluster, Server, Topology


@dataclass(frozen=True, slots=True)
class Networked:
    """The policies of a core with a network: fresh, for one core."""

    servers: Cluster
    setup: Setup
    allocation: Allocation


def networked(
    topology: Topology,
    scheduler: str,
    settings: AllocationSettings,
    of_scheduler: tuple[tuple[str, float], ...] = (),
) -> Networked:
    """Return scheduler, placement, routing and memory, all by name, for one core on this cluster.

    Args:
        topology: Servers, switches and links.
        scheduler: The scheduling policy's name.
        settings: The other policies' names, and how they are asked.
        of_scheduler: Settings of the scheduling policy, by name.

    Returns:
        The servers as the scheduler sees them (one large one, unless its own places hold), the scheduler, and
        the allocation.

    Raises BadSpec for unknown names.
    """
    servers = servers_of(topology, settings)
    setup = setup_of(servers, scheduler, settings, of_scheduler)
    allocator = Allocator(topology, policies_of(settings), settings)
    return Networked(servers, setup, Allocation(allocator, servers, settings))


def setup_of(
    servers: Cluster,
    scheduler: str,
    settings: AllocationSettings,
    of_scheduler: tuple[tuple[str, float], ...] = (),
) -> Setup:
    """Return a fresh scheduler for these servers; see `networked`. Raises BadSpec."""
    config = SimulationConfig(servers, seed=settings.seed, settings=of_scheduler)
    setup = registry.make(scheduler, config)
    if setup.places and settings.placement != SCHEDULER:
        raise BadSpec(
            f"scheduler {scheduler!r} chooses servers itself: placement is {settings.placement!r}, want"
            f" {SCHEDULER!r}"
        )
    return setup


def servers_of(topology: Topology, settings: AllocationSettings) -> Cluster:
    """Return the servers as the scheduler sees them: one large one, unless its own places hold."""
    if settings.placement == SCHEDULER:
        return Cluster.of(topology)
    return Cluster((Server("all", topology.gpus),), topology)
