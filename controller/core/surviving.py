"""The part of a network that survives failures of servers and switches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from controller.vocabulary import Topology


def surviving(topology: Topology, servers: Collection[str], switches: Collection[str]) -> Topology | None:
    """Return the cluster without these servers and switches; None if no switch with a server is left.

    If the rest is not connected, only the part with the most GPUs is returned (the first of equal ones): the
    other servers cannot be reached. O(links).

    >>> from controller.vocabulary import fabrics
    >>> rack = fabrics.star(3)
    >>> [server.name for server in surviving(rack, {"h2"}, ()).servers]
    ['h1', 'h3']
    >>> surviving(rack, (), {"s1"}) is None
    True
    """
    if not servers and not switches:
        return topology
    parts = [_part(topology, nodes) for nodes in _components(topology, {*servers, *switches})]
    return max(
        (part for part in parts if part is not None), key=lambda part: part.gpus, default=None
    )  # max returns the first of equals


def _components(topology: Topology, down: Collection[str]) -> list[set[str]]:
    """Return the nodes that can reach each other, part by part, in the order of their first switches."""
    found: list[set[str]] = []
    seen: set[str] = {*down}
    for switch in topology.switches:
        if switch.name in seen:
            continue
        nodes, waiting = {switch.name}, [switch.name]
        while waiting:
            for other in topology.neighbours[waiting.pop()]:
                if other not in nodes and other not in down:
                    nodes.add(other)
                    waiting.append(other)
        seen |= nodes
        found.append(nodes)
    return found


def _part(topology: Topology, nodes: set[str]) -> Topology | None:
    kept = tuple(each for each in topology.servers if each.name in nodes)
    if not kept:
        return None
    switches = tuple(each for each in topology.switches if each.name in nodes)
    return replace(
        topology,
        root=topology.root if topology.root in nodes else switches[0].name,
        servers=kept,
        switches=switches,
        links=tuple(each for each in topology.links if each.a in nodes and each.b in nodes),
    )
