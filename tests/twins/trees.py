"""All trees of a job, whatever they cost: the oracle of routing on small clusters.

Each switch that something reaches gets a parent, any neighbour that closes no circle, until only the root is
left; any of the tree's switches that have slots may sum. Nothing is taken from `controller.policies.routing`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from controller.vocabulary import Topology, Tree


def every_tree(topology: Topology, racks: Sequence[str], root: str) -> Iterator[Tree]:
    """Yield all trees from `racks` to `root` over links between switches, with all choices of what sums."""
    for parents in _grown(topology, root, [rack for rack in racks if rack != root], {}):
        able = [name for name in (root, *parents) if topology.switch[name].aggregates]
        for count in range(len(able) + 1):
            for summing in itertools.combinations(able, count):
                yield Tree(root, dict(parents), frozenset(summing))


def _grown(
    topology: Topology, root: str, open_: Sequence[str], parents: Mapping[str, str]
) -> Iterator[Mapping[str, str]]:
    if not open_:
        yield parents
        return
    node, rest = open_[0], open_[1:]
    if node in parents:
        yield from _grown(topology, root, rest, parents)
        return
    for above in topology.neighbours[node]:
        if above not in topology.switch or _leads_to(above, node, parents):
            continue
        reached = [*rest, above] if above != root and above not in parents else rest
        yield from _grown(topology, root, reached, {**parents, node: above})


def _leads_to(start: str, end: str, parents: Mapping[str, str]) -> bool:
    node = start
    while node != end and node in parents:
        node = parents[node]
    return node == end
