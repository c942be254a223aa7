"""Which host carries which worker, and what aggregation tree follows from that. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bmv2_topos.catalog import star, tree
from bmv2_topos.jobfile import JobEntry
from bmv2_topos.spec import Link, Topology, TopologyError
from controller.layout import TreeLink, TreeSwitch
from controller.model import INA_UDP_PORT, Member, Region


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts of one job: its workers' by rank, and its fallback server's."""

    workers: tuple[str, ...]
    server: str | None = None


def build(
    jobs: Sequence[JobEntry],
    shape: Sequence[int] | None = None,
    *,
    servers: bool,
    link: Link | None = None,
    trunk: Link | None = None,
    transit: Sequence[int] = (),
) -> tuple[Topology, tuple[Placement, ...]]:
    """Return a network with a host for every worker of every job, and with `servers` one more per job.

    `shape` are the children per level of a tree that holds one job, such as (2, 4) for two racks of four;
    None is one switch. Every job fills such a tree with hosts of its own, spread evenly over the racks, ranks
    that follow each other together; the switches and the cables between them are common to all jobs.

    Raises:
        TopologyError: a job has more workers than its tree has places.
    """
    count = len(jobs) if servers else 0
    if shape is None or len(shape) == 1:
        places = [job.workers for job in jobs]
        if shape is not None and max(places) > shape[0]:
            raise TopologyError(
                f"a job has {max(places)} workers, and the switch has {shape[0]} places for it"
            )
        topology = star(sum(places), servers=count, link=link)
        racks = [["s1"] * workers for workers in places]
    else:
        *inner, per_rack = shape
        leaves = math.prod(inner)
        for job in jobs:
            if job.workers > leaves * per_rack:
                text = f"a tree of {'x'.join(map(str, shape))} has {leaves * per_rack} places"
                raise TopologyError(f"job {job.name!r} has {job.workers} workers; {text}")
        needed = sum(-(-job.workers // leaves) for job in jobs)
        topology = tree([*inner, needed], servers=count, link=link, trunk=trunk, transit=transit)
        names = [switch.name for switch in topology.switches][-leaves:]
        racks = [[names[rank * leaves // job.workers] for rank in range(job.workers)] for job in jobs]
    free: dict[str, list[str]] = {}
    for host in topology.hosts:
        if host.name.startswith("h"):
            free.setdefault(topology.switch_of(host.name), []).append(host.name)
    placements = []
    for number, switches in enumerate(racks, start=1):
        workers = tuple(free[switch].pop(0) for switch in switches)
        placements.append(Placement(workers, f"p{number}" if servers else None))
    return topology, tuple(placements)


def job_tree(topology: Topology, placement: Placement, regions: Mapping[str, Region | None]) -> TreeSwitch:
    """Return the switches that a job needs, from the root down, with its workers as members.

    `regions` are the slots that a shared job may use, by switch; a switch left out has all to offer.
    """
    members: dict[str, list[Member]] = {}
    for rank, host in enumerate(placement.workers):
        switch = topology.switch_of(host)
        port = topology.port_to(switch, host)
        member = Member(rank, port, topology.mac(host), topology.ip(host), INA_UDP_PORT)
        members.setdefault(switch, []).append(member)
    aggregates = {switch.name: switch.aggregates for switch in topology.switches}
    below: dict[str, list[str]] = {name: [] for name in aggregates}
    for name in aggregates:
        if parent := topology.parents[name]:
            below[parent].append(name)

    def grow(name: str) -> TreeSwitch:
        links = []
        for child in below[name]:
            subtree = grow(child)
            if subtree.members or subtree.links:
                links.append(TreeLink(topology.port_to(name, child), subtree, topology.port_to(child, name)))
        return TreeSwitch(
            name,
            tuple(members.get(name, ())),
            tuple(links),
            region=regions.get(name),
            transit=not aggregates[name],
        )

    return grow(topology.root)
