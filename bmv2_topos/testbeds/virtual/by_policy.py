"""Converts the policies' decisions about jobs (hosts, trees, slots) to input of the testbed. Pure functions.

The policies of ``ina place``, ``ina route`` and ``ina alloc`` decide. They are called once, in the same
way as by the deciding core (`controller.core.allocator`), as if all jobs ran from the start. Their
predictions, by water-filling, are kept for comparison with the results of the simulated packets.

The workers of a job on one server are summed there first, so each server is one rank here. A job on a single
server sends no packets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bmv2_topos.testbeds.virtual.placement import Placement
from bmv2_topos.testbeds.virtual.report import Directed, Prediction
from bmv2_topos.testbeds.virtual.settings import DEFAULT_WINDOW, TestbedError, VirtualSettings
from controller.core.allocator import allocate
from controller.policies.placement.flows import Pools, flows_of, waterfill
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job, Region, Topology, Tree
from hostlib import wire
from hostlib.wire.encodings import per_lane


@dataclass(frozen=True, slots=True)
class PolicyResults:
    """The policies' decisions for jobs: hosts, trees and slots."""

    jobs: tuple[Job, ...]
    """All jobs, as placed and routed."""
    ranks: tuple[Job, ...]
    """The jobs that use the network, as the testbed runs them: with one rank for each server."""
    placements: tuple[Placement, ...]
    """Placements of `ranks`."""
    foreseen: Prediction
    policies: Mapping[str, str]
    """The policies' names, by the kind of decision."""


def decide(
    topology: Topology, jobs: Sequence[Job], policies: AllocationSettings, settings: VirtualSettings
) -> PolicyResults:
    """Return the testbed's topology, placements and jobs as decided by the policies.

    Args:
        topology: Switches, servers and links.
        jobs: The jobs.
        policies: Names of the policies, and their settings.
        settings: Settings of the simulation.

    Raises:
        BadSpec: a policy is unknown, or its result is invalid.
        TestbedError: there is no room for a job, its deadline cannot be met, or its fallback server is behind
            a switch of its tree other than the root.
    """
    shares = settings.shares
    network = replace(
        topology,
        switches=tuple(
            replace(each, slots=settings.slots if each.aggregates else 0, lanes=settings.lanes)
            for each in topology.switches
        ),
    )
    wanted = [replace(job, mode="shared" if shares else "exclusive") for job in jobs]
    allocator = allocate(network, wanted, policies)
    if waiting := [job for job in wanted if job.name not in allocator.placed]:
        gpus = sum(server.gpus for server in topology.servers)
        raise TestbedError(
            f"job {waiting[0].name!r} does not fit: the jobs need {sum(job.gpus for job in jobs)} GPUs at the"
            f" same time, and {topology.name or 'the network'} has {gpus}"
        )
    if ended := allocator.divide(0.0):
        raise TestbedError(f"job {ended[0]!r} cannot meet its deadline under memory policy {policies.memory}")
    assert allocator.division is not None
    placed = tuple(allocator.placed[job.name] for job in jobs)
    regions = allocator.division.regions
    ranks, placements = [], []
    for job in placed:
        if len(job.hosts) > 1:
            placement = placement_of(network, job, regions.get(job.name, {}), shares=shares)
            placements.append(placement)
            ranks.append(ranks_of(job, regions.get(job.name, {}), shares=shares))
    steady = waterfill(allocator.flows())
    rates = {job.name: float(bps) for job, bps in zip(allocator.crossing, steady.rate_bps, strict=True)}
    crossing = [job for job in placed if len(job.hosts) > 1]
    foreseen = Prediction(
        rate_bps=rates,
        iteration_s={job.name: job.iteration_at_s(rates[job.name]) for job in crossing},
        link_bytes=_link_bytes(network, crossing, settings),
    )
    return PolicyResults(placed, tuple(ranks), tuple(placements), foreseen, policies.names)


def placement_of(topology: Topology, job: Job, regions: Mapping[str, Region], *, shares: bool) -> Placement:
    """Return the hosts of a routed job's ranks, with its tree and its slots.

    The testbed needs the fallback server at the root. If the server is linked to a switch outside the tree,
    the tree is extended up to that switch, by switches with one child and without slots.

    Args:
        topology: Switches, servers and links.
        job: The placed and routed job.
        regions: The job's regions, by switch.
        shares: Whether jobs share slots.

    Raises TestbedError if the fallback server is linked to a switch of the tree below the root.
    """
    assert job.tree is not None
    tree = job.tree
    parents = dict(tree.parents)
    sums = tree.aggregators if job.aggregate else frozenset[str]()
    slots = {name: regions.get(name, Region(0, 0)) for name in sums}
    root = tree.root
    if root not in sums:
        slots[root] = Region(0, 0)
    if job.fallback is not None and shares:
        for above in topology.way(root, topology.rack_of[job.fallback])[1:]:
            if above in parents:
                raise TestbedError(
                    f"job {job.name!r}: packets reach its fallback server {job.fallback!r} through {above!r},"
                    f" a switch of its tree; want a server at the root, {tree.root!r}, or outside the tree"
                )
            parents[root] = above
            root = above
            slots[above] = Region(0, 0)
    if not shares and not sums:
        raise TestbedError(
            f"job {job.name!r}: no switch of its tree can sum, and with exclusive slots there is no"
            " fallback server"
        )
    return Placement(
        job.hosts,
        job.fallback if shares else None,
        Tree(root, parents, frozenset(slots)),
        slots if shares else None,
    )


def ranks_of(job: Job, regions: Mapping[str, Region], *, shares: bool) -> Job:
    """Return the job with one rank for each server.

    Unless jobs share slots (`shares`), the job gets the size of the smallest of its regions as its number of
    slots.
    """
    straggler = job.straggler
    if straggler is not None:
        straggler = replace(straggler, rank=job.hosts.index(job.servers[straggler.rank]))
    slots = job.slots if shares else min(region.size for region in regions.values())
    return replace(
        job, workers=len(job.hosts), servers=job.hosts, gpus_per_worker=1, straggler=straggler, slots=slots
    )


def _link_bytes(topology: Topology, jobs: Sequence[Job], settings: VirtualSettings) -> dict[Directed, int]:
    """Return the bytes of frames on each link that jobs use, according to the policies' flow model."""
    found: dict[Directed, int] = {}
    frame_bytes = wire.FRAME_PREFIX_BYTES + wire.INA_BYTES + 4 * settings.lanes
    boundless = Pools([float("inf")], lambda job, at: 0)
    for job in jobs:
        flows = flows_of(topology, [job], boundless)
        # with rate 1 for every job, and no limits, the load of a link is its number of flows
        unlimited = np.full_like(flows.link_bps, np.inf)
        loads = waterfill(replace(flows, link_bps=unlimited, limit_bps=np.ones(1))).load_bps[: len(unlimited)]
        frames = job.iterations * sum(packets_of(size, job, settings) for size in job.tensors)
        for number in np.flatnonzero(loads):
            link = topology.links[number // 2]
            ends = (link.a, link.b) if number % 2 == 0 else (link.b, link.a)
            found[ends] = found.get(ends, 0) + round(float(loads[number])) * frames * frame_bytes
    return found


def packets_of(elements: int, job: Job, settings: VirtualSettings) -> int:
    """Return the number of packets for one tensor, including packets that only announce exponents."""
    data = max(1, -(-elements // (settings.lanes * per_lane(job.numbers))))
    in_flight = job.window or DEFAULT_WINDOW
    if not settings.shares:
        in_flight = min(in_flight, (job.slots or 2 * in_flight) // 2)
    return data + (0 if job.numbers == "fixed" else min(data, in_flight))
