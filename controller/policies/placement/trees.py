"""Aggregation trees of placed jobs: shortest paths from the jobs' servers to a root."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from controller.errors import BadSpec
from controller.vocabulary import Job, Topology, Tree


def tree_of(topology: Topology, job: Job) -> Tree:
    """Return the tree of a placed job: `job.tree`, or else a tree of shortest paths to `root_for`.

    In a tree of shortest paths, every switch sums that can sum and receives more than one contribution.

    Raises BadSpec if the job is not placed.
    """
    if job.tree is not None:
        return job.tree
    racks = racks_of(topology, job)
    root = root_for(topology, job)
    parents = paths_up(topology, racks, root)
    can_sum = [name for name in (root, *parents) if topology.switch[name].aggregates]
    return tidy(topology, job, Tree(root, parents, frozenset(can_sum)))


def root_for(topology: Topology, job: Job) -> str:
    """Return the root of a job's tree: the summing switch nearest to the job's fallback server.

    For a job without a fallback server, the root is the summing switch nearest to all racks of the job.
    """
    return best_root(topology, [topology.rack_of[job.fallback]] if job.fallback else racks_of(topology, job))


def racks_of(topology: Topology, job: Job) -> list[str]:
    """Return the switches that a job's servers are linked to, each once. Raises BadSpec without servers."""
    if not job.servers:
        raise BadSpec(f"job {job.name!r} has no servers; place it with ina place, or give servers = [...]")
    return list(dict.fromkeys(topology.rack_of[server] for server in job.hosts))


def best_root(topology: Topology, racks: Collection[str]) -> str:
    """Return the switch with the shortest paths to all `racks`: a switch that sums, if any does.

    Of equally near switches, returns the one with most memory, then the first. O(racks * switches).
    """
    slots = np.array([each.slots for each in topology.switches], dtype=np.int64)
    ways = ways_to(topology, racks)
    if slots.any():
        ways = np.where(slots > 0, ways, ways.max() + 1)
    nearest = np.flatnonzero(ways == ways.min())
    return topology.switches[int(nearest[np.argmax(slots[nearest])])].name


def ways_to(topology: Topology, racks: Iterable[str]) -> NDArray[np.int64]:
    """Return, for each switch, the sum of its distances to all `racks` in links, shape (switches,)."""
    hops = np.array([topology.hops(rack) for rack in racks], dtype=np.int64)
    found: NDArray[np.int64] = hops.sum(axis=0)
    return found


def paths_up(topology: Topology, racks: Iterable[str], root: str) -> dict[str, str]:
    """Return the parents of all switches on shortest paths from `racks` to `root`."""
    towards = topology.towards(root)
    parents: dict[str, str] = {}
    for node in racks:
        while node != root and node not in parents:
            parents[node] = towards[node]
            node = towards[node]
    return parents


def tidy(topology: Topology, job: Job, tree: Tree) -> Tree:
    """Return a copy of `tree` in which switches that receive only one contribution forward it unsummed.

    The root still sums if it has memory, because the root sends the results.
    """
    fan_ins = fan_in(topology, job, tree)
    useful = {name for name in tree.aggregators if fan_ins[name] > 1 or name == tree.root}
    return Tree(tree.root, tree.parents, frozenset(useful))


def fan_in(topology: Topology, job: Job, tree: Tree) -> Mapping[str, int]:
    """Return the number of contributions that reach each switch of the tree."""
    found = dict.fromkeys(tree.switches, 0)
    for server in job.hosts:
        found[topology.rack_of[server]] += 1
    for name in bottom_up(tree):
        if name != tree.root and found[name]:
            found[tree.parents[name]] += 1 if name in tree.aggregators else found[name]
    return found


def bottom_up(tree: Tree) -> list[str]:
    """Return the switches of a tree, children before their parents."""
    order = [tree.root]
    children: dict[str, list[str]] = {}
    for child, parent in tree.parents.items():
        children.setdefault(parent, []).append(child)
    for name in order:
        order += children.get(name, ())
    return order[::-1]


def slowest_link_bps(topology: Topology, job: Job, tree: Tree) -> float:
    """Return the rate of the slowest link that the job's flows use, bits per second."""
    pairs = [(server, topology.rack_of[server]) for server in job.hosts] + list(tree.parents.items())
    return min(topology.links[topology.neighbours[child][parent]].capacity_bps for child, parent in pairs)


def way_to_fallback(topology: Topology, job: Job, tree: Tree) -> tuple[str, ...]:
    """Return the switches from a job's root to the switch of its fallback server, both included."""
    return topology.way(tree.root, topology.rack_of[job.fallback] if job.fallback else tree.root)
