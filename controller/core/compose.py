"""Make the parts of a core (its scheduler and its allocation) from the names of its policies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from controller.core.allocation import Allocation
from controller.errors import BadSpec
from controller.policies import registry
from controller.policies.family import Setup, SimulationConfig
from controller.policies.registry import SCHEDULER, policies_of
from controller.policies.scheduling.policy import Submission
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Cluster, Job, Server, Topology
from controller.vocabulary.errors import plural

# ---------------------------------------------------------------------------
# Jobs as scheduling policies see them, on a cluster with a network.


LEAST_S = 1e-6
"""Minimum duration of an iteration, in seconds."""


def submission_of(job: Job, topology: Topology) -> Submission:
    """Return a job as schedulers see it, with the time of an iteration alone on the cluster's fastest links.

    Raises BadSpec if even the empty cluster has no room for the job's workers.
    """
    if not _has_room(job, topology):
        raise BadSpec(
            f"job {job.name!r}: {plural(job.workers, 'worker')} of"
            f" {plural(job.gpus_per_worker, 'GPU')}; the servers have no"
            " room for it"
        )
    alone_bps = math.inf if _fits_one_server(job, topology) else topology.fastest_bps
    iteration_s = max(job.iteration_at_s(alone_bps), LEAST_S)
    network_s = 0.0 if alone_bps == math.inf else job.model_bytes * 8 / alone_bps
    stages_s = job.stages_s or (0.0, 0.0, max(job.compute_s, LEAST_S), network_s)
    return Submission.timed(
        job, iterations=job.iterations, iteration_s=iteration_s, stages_s=stages_s, extra=job.extra
    )


def _has_room(job: Job, topology: Topology) -> bool:
    """Return whether all servers together have room for a job; stop counting once there is enough room."""
    missing = job.workers
    for server in topology.servers:
        missing -= server.gpus // job.gpus_per_worker
        if missing <= 0:
            return True
    return False


def _fits_one_server(job: Job, topology: Topology) -> bool:
    if job.servers:
        return len(job.hosts) == 1
    return any(server.gpus // job.gpus_per_worker >= job.workers for server in topology.servers)


@dataclass(frozen=True, slots=True)
class NetworkPolicies:
    """The policies of one core with a network. Policies keep state: make new ones for each core."""

    servers: Cluster
    setup: Setup
    allocation: Allocation


def network_policies(
    topology: Topology,
    scheduler: str,
    settings: AllocationSettings,
    scheduler_settings: tuple[tuple[str, float], ...] = (),
) -> NetworkPolicies:
    """Return a scheduler and an allocation with new policies, given by name, for one core on this cluster.

    Args:
        topology: Servers, switches and links.
        scheduler: The scheduling policy's name.
        settings: Names of the placement, routing and memory policies, and their settings.
        scheduler_settings: Settings of the scheduling policy, by name.

    Returns:
        The servers as the scheduler sees them (one large server, unless the scheduler chooses servers itself:
        placement `SCHEDULER`), the scheduler, and the allocation.

    Raises BadSpec for unknown names.
    """
    from controller.core.allocator import Allocator  # imports NumPy and the memory policies

    servers = servers_of(topology, settings)
    setup = setup_of(servers, scheduler, settings, scheduler_settings)
    allocator = Allocator(topology, policies_of(settings), settings)
    return NetworkPolicies(servers, setup, Allocation(allocator, servers, settings))


def setup_of(
    servers: Cluster,
    scheduler: str,
    settings: AllocationSettings,
    scheduler_settings: tuple[tuple[str, float], ...] = (),
) -> Setup:
    """Return a new scheduler for these servers; for the arguments see `network_policies`.

    Raises BadSpec for an unknown name, and for a scheduler that chooses servers if the placement is not
    `SCHEDULER`.
    """
    config = SimulationConfig(servers, seed=settings.seed, settings=scheduler_settings)
    setup = registry.make(scheduler, config)
    if setup.places and settings.placement != SCHEDULER:
        raise BadSpec(
            f"scheduler {scheduler!r} chooses servers itself: placement is {settings.placement!r}, want"
            f" {SCHEDULER!r}"
        )
    return setup


def servers_of(topology: Topology, settings: AllocationSettings) -> Cluster:
    """Return the servers as the scheduler sees them.

    A scheduler sees one large server, unless the scheduler chooses servers itself (placement `SCHEDULER`).
    """
    if settings.placement == SCHEDULER:
        return Cluster.of(topology)
    return Cluster((Server("all", topology.gpus),), topology)


def keep_gpu_numbers(before: Cluster, after: Cluster) -> Cluster:
    """Return the servers of `after` in an order that keeps the GPU numbers of `before`.

    A GPU's number is its position among the GPUs of all servers, and running jobs refer to GPUs by number.
    So servers that have left stay in the list, with GPUs that are unavailable (`controller.core.allocation`),
    and new servers come last. If a single large server stands for all servers (`servers_of`), it gets the
    larger of the numbers of GPUs in `before` and `after`.

    Raises BadSpec for a server whose number of GPUs has changed.
    """
    if len(before.servers) == len(after.servers) == 1 and before.servers[0].name == after.servers[0].name:
        largest = max(before.servers[0], after.servers[0], key=lambda server: server.gpus)
        return Cluster((largest,), after.topology)
    now = {server.name: server for server in after.servers}
    for server in before.servers:
        if server.name in now and now[server.name].gpus != server.gpus:
            raise BadSpec(
                f"server {server.name!r}: gpus = {now[server.name].gpus}, was {server.gpus}; with placement"
                " 'scheduler' this cannot change: give the server another name"
            )
    kept = [now.pop(server.name, server) for server in before.servers]
    return Cluster((*kept, *now.values()), after.topology)
