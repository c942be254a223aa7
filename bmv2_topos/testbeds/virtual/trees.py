"""Trees of switches: by which links a job's packets climb to the root. Pure functions."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from controller.vocabulary import BadSpec, Topology


@dataclass(frozen=True, slots=True)
class SwitchTree:
    """A root, and the parent of every other switch of the tree.

    It may hold switches that a job has no workers on or below; these take no part in the job.
    """

    root: str
    parents: Mapping[str, str]

    def __contains__(self, switch: str) -> bool:
        return switch == self.root or switch in self.parents


def shortest_tree(topology: Topology, root: str | None = None, *, avoid: Collection[str] = ()) -> SwitchTree:
    """Return the shortest paths to `root`, by default the topology's, of all switches that have one.

    The switches in `avoid` are left out. Between equally short paths the earlier link decides.

    Raises:
        BadSpec: the root is no switch, or is to be avoided.
    """
    root = topology.root if root is None else root
    if root not in topology.ports:
        raise BadSpec(f"the root {root!r} is not a switch")
    if root in avoid:
        raise BadSpec(f"the root {root!r} is among the switches to avoid")
    parents: dict[str, str] = {}
    waiting = deque([root])
    while waiting:
        switch = waiting.popleft()
        for link in topology.ports[switch].values():
            below = link.other(switch)
            if below in topology.ports and below not in parents and below != root and below not in avoid:
                parents[below] = switch
                waiting.append(below)
    return SwitchTree(root, parents)


def drawn_tree(topology: Topology, root: str, draw: random.Random) -> SwitchTree:
    """Return shortest paths to `root` of all switches that have one, each drawn among the equally short ones.

    The ways of packets to what is behind the root, where switches spread them over equal costs (ECMP, by the
    receiver).
    """
    distance = topology.distances({root: 0})
    parents = {}
    for switch in topology.switch:
        if switch != root and switch in distance:
            others = [link.other(switch) for link in topology.ports[switch].values()]
            nearer = [other for other in others if distance.get(other) == distance[switch] - 1]
            parents[switch] = draw.choice(nearer)
    return SwitchTree(root, parents)


def check_tree(topology: Topology, tree: SwitchTree) -> None:
    """Check that a tree is one, of switches and links that are there.

    Raises:
        BadSpec: says which switch or link is at fault, and what would be right.
    """
    if tree.root not in topology.ports:
        raise BadSpec(f"the tree's root {tree.root!r} is not a switch")
    if tree.root in tree.parents:
        above = tree.parents[tree.root]
        raise BadSpec(f"the tree's root {tree.root!r} has the parent {above!r}; a root has none")
    for switch, parent in tree.parents.items():
        for name in (switch, parent):
            if name not in topology.ports:
                raise BadSpec(f"{name!r} is in the tree and is not a switch")
        if all(link.other(switch) != parent for link in topology.ports[switch].values()):
            raise BadSpec(f"the tree needs a link {switch}-{parent}, and there is none")
        if parent not in tree:
            raise BadSpec(f"{parent!r}, parent of {switch!r}, is not the root and has no parent itself")
    for switch in tree.parents:
        way = [switch]
        while way[-1] != tree.root:
            way.append(tree.parents[way[-1]])
            if way[-1] in way[:-1]:
                circle = "-".join(way[way.index(way[-1]) :])
                raise BadSpec(f"not a tree: the way up from {switch!r} runs in a circle: {circle}")
