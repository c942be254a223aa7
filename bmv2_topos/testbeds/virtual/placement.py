"""The hosts of workers, and the resulting aggregation tree. Pure functions."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.switches.layout import Branch, branch_of, members_by_switch
from controller.switches.model import INA_UDP_PORT
from controller.vocabulary import BadSpec, Job, Link, Region, Topology, Tree
from controller.vocabulary.catalog import star, tree
from controller.vocabulary.lists import by_key

# ---------------------------------------------------------------------------
# Trees of switches: the paths of a job's packets to the root. Pure functions.


def shortest_tree(topology: Topology, root: str | None = None) -> Tree:
    """Return a tree of shortest paths from all switches to `root`, by default the topology's root.

    Switches without workers of a job at or below them take no part in that job. Of equally short paths,
    the path over the link that is earlier in the topology is used. Raises BadSpec if the root is no switch.
    """
    root = topology.root if root is None else root
    if root not in topology.switch:
        raise BadSpec(f"the root {root!r} is not a switch")
    return Tree(root, topology.towards(root), frozenset(topology.switch))


def drawn_tree(topology: Topology, root: str, draw: random.Random) -> Tree:
    """Return a tree of shortest paths to `root`; equally short paths are drawn at random.

    Packets to hosts at the root take such paths where switches choose among equally short paths by the
    receiver (ECMP).
    """
    distance = topology.distances({root: 0})
    parents = {}
    for switch in topology.switch:
        if switch != root and switch in distance:
            neighbours = [link.other(switch) for link in topology.ports[switch].values()]
            nearer = [each for each in neighbours if distance.get(each) == distance[switch] - 1]
            parents[switch] = draw.choice(nearer)
    return Tree(root, parents, frozenset())


def check_tree(topology: Topology, tree: Tree) -> None:
    """Raise BadSpec, which names the switch or link, if the topology lacks a switch or link of the tree."""
    for switch in tree.switches:
        if switch not in topology.ports:
            raise BadSpec(f"{switch!r} is in the tree and is not a switch")
    for switch, parent in tree.parents.items():
        if all(link.other(switch) != parent for link in topology.ports[switch].values()):
            raise BadSpec(f"the tree needs a link {switch}-{parent}, and there is none")


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts of one job: of its workers, by rank, and of its fallback server.

    A host may run several workers, of one or several jobs, and several fallback servers, which then share its
    link. But no host may run a worker and the fallback server of the same job.
    """

    workers: tuple[str, ...]
    server: str | None = None
    """Host of the fallback server, linked to the root of the job's tree: only the root sends to it."""
    tree: Tree | None = None
    """The switches between the job's hosts and the root; None: the topology's tree of shortest paths.
    Switches that do not aggregate, and switches without slots for the job, forward its packets unchanged."""
    regions: Mapping[str, Region] | None = None
    """Slots that the job may use, by switch, if jobs share slots; None: the job file decides, by default all
    slots."""

    def tree_on(self, topology: Topology) -> Tree:
        """Return the job's tree: `tree`, or the topology's tree of shortest paths."""
        return shortest_tree(topology) if self.tree is None else self.tree


@dataclass(frozen=True, slots=True)
class Ports:
    """The UDP ports of a job's workers and fallback server, which distinguish stations of one host."""

    workers: tuple[int, ...]
    """By rank."""
    server: int = INA_UDP_PORT


def build(
    jobs: Sequence[Job],
    shape: Sequence[int] | None = None,
    *,
    servers: bool,
    link: Link | None = None,
    trunk: Link | None = None,
    transit: Sequence[int] = (),
) -> tuple[Topology, tuple[Placement, ...]]:
    """Return a network for jobs, and the hosts of each job.

    All jobs use the same switches and links between them, but every job has its own hosts. These are spread
    evenly over the racks, with consecutive ranks in the same rack.

    Args:
        jobs: The jobs.
        shape: Children of a node at each level of the tree, root first, such as (2, 4): two racks, each with
            four hosts for every job. None: one switch.
        servers: Whether to add a host for a fallback server for each job.
        link: Properties of the hosts' links.
        trunk: Properties of the links between switches; None: the same as `link`.
        transit: Levels (0: the root) whose switches do not aggregate.

    Raises:
        BadSpec: a job has more workers than its tree has places.
    """
    count = len(jobs) if servers else 0
    if shape is None or len(shape) == 1:
        places = [job.workers for job in jobs]
        if shape is not None and max(places) > shape[0]:
            raise BadSpec(f"a job has {max(places)} workers, but the switch has ports for {shape[0]} of them")
        topology = star(sum(places), servers=count, link=link)
        racks = [["s1"] * workers for workers in places]
    else:
        *inner, per_rack = shape
        leaves = math.prod(inner)
        for job in jobs:
            if job.workers > leaves * per_rack:
                text = f"a tree of {'x'.join(map(str, shape))} has {leaves * per_rack} hosts for them"
                raise BadSpec(f"job {job.name!r} has {job.workers} workers; {text}")
        needed = sum(-(-job.workers // leaves) for job in jobs)
        topology = tree([*inner, needed], servers=count, link=link, trunk=trunk, transit=transit)
        names = [switch.name for switch in topology.switches][-leaves:]
        racks = [[names[rank * leaves // job.workers] for rank in range(job.workers)] for job in jobs]
    hosts = (host.name for host in topology.servers if host.name.startswith("h"))
    free = by_key((topology.rack_of[host], host) for host in hosts)
    placements = []
    for number, switches in enumerate(racks, start=1):
        workers = tuple(free[switch].pop(0) for switch in switches)
        placements.append(Placement(workers, f"p{number}" if servers else None))
    return topology, tuple(placements)


def check_placement(topology: Topology, placement: Placement) -> None:
    """Check that a job can run at its placement.

    Raises:
        BadSpec: a host does not exist, the tree is invalid or lacks a worker's switch, or the fallback server
            is not at the root, or is at a worker's host.
    """
    hosts = {host.name for host in topology.servers}
    server = placement.server
    for name in (*placement.workers, *([] if server is None else [server])):
        if name not in hosts:
            raise BadSpec(f"there is no host {name!r}")
    tree = placement.tree_on(topology)
    check_tree(topology, tree)
    for rank, host in enumerate(placement.workers):
        if topology.rack_of[host] not in tree.switches:
            raise BadSpec(
                f"rank {rank} on {host} is at switch {topology.rack_of[host]!r}, which is not in the tree"
            )
    if server is None:
        return
    if topology.rack_of[server] != tree.root:
        raise BadSpec(
            f"the fallback server's host {server} is at switch {topology.rack_of[server]!r}; it must be"
            f" linked to the root of the job's tree, {tree.root!r}"
        )
    if server in placement.workers:
        raise BadSpec(f"host {server} has the fallback server and a worker of the same job")


def branches(
    topology: Topology,
    placement: Placement,
    region: Region | None = None,
    ports: Ports | None = None,
) -> Branch:
    """Return the root of the tree of switches that a job needs, with the workers and switches below each.

    Args:
        topology: The network.
        placement: The job's hosts.
        region: Slots of a job that shares slots, unless its placement has regions; None: all.
        ports: UDP ports of the workers; None: all use `INA_UDP_PORT`.
    """
    members = members_by_switch(topology, placement.workers, None if ports is None else ports.workers)
    tree = placement.tree_on(topology)
    own = placement.regions or {}
    without = {switch.name for switch in topology.switches if not switch.aggregates}
    transit = (without - own.keys()) | (set(tree.switches) - tree.aggregators)
    regions = dict.fromkeys(topology.switch, region) | dict(own)
    return branch_of(topology, tree.root, tree.parents, members, regions=regions, transit=transit)
