"""The part of a network that survives failures of servers, switches and links."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from controller.vocabulary import Link, Topology


def surviving(
    topology: Topology,
    servers: Collection[str],
    switches: Collection[str],
    links: Collection[tuple[str, str]] = (),
) -> Topology | None:
    """Return the part of the cluster that is up; None if no switch with a server is left.

    If the rest is not connected, only the part with the most GPUs is returned (the first of equal ones): the
    other servers cannot be reached. O(links).

    Args:
        topology: The whole cluster.
        servers: Names of the servers that are down.
        switches: Names of the switches that are down.
        links: Ends of the links that are down, in the order that the cluster has them in.

    >>> from controller.vocabulary import fabrics
    >>> rack = fabrics.star(3)
    >>> [server.name for server in surviving(rack, {"h2"}, ()).servers]
    ['h1', 'h3']
    >>> surviving(rack, (), {"s1"}) is None
    True
    >>> [server.name for server in surviving(rack, (), (), {("h2", "s1")}).servers]
    ['h1', 'h3']
    """
    if not servers and not switches and not links:
        return topology
    up = [
        link
        for link in topology.links
        if not {link.a, link.b} & {*servers, *switches} and (link.a, link.b) not in links
    ]
    down = {*servers, *switches}
    parts = [_part(topology, nodes, up) for nodes in _components(topology, down, up)]
    return max(
        (part for part in parts if part is not None), key=lambda part: part.gpus, default=None
    )  # max returns the first of equals


def _components(topology: Topology, down: Collection[str], links: Collection[Link]) -> list[set[str]]:
    """Return the nodes that can reach each other, part by part, in the order of their first switches."""
    neighbours: dict[str, list[str]] = {}
    for link in links:
        neighbours.setdefault(link.a, []).append(link.b)
        neighbours.setdefault(link.b, []).append(link.a)
    found: list[set[str]] = []
    seen: set[str] = {*down}
    for switch in topology.switches:
        if switch.name in seen:
            continue
        nodes, waiting = {switch.name}, [switch.name]
        while waiting:
            for other in neighbours.get(waiting.pop(), ()):
                if other not in nodes:
                    nodes.add(other)
                    waiting.append(other)
        seen |= nodes
        found.append(nodes)
    return found


def _part(topology: Topology, nodes: set[str], links: Collection[Link]) -> Topology | None:
    kept = tuple(each for each in topology.servers if each.name in nodes)
    if not kept:
        return None
    switches = tuple(each for each in topology.switches if each.name in nodes)
    return replace(
        topology,
        root=topology.root if topology.root in nodes else switches[0].name,
        servers=kept,
        switches=switches,
        links=tuple(each for each in links if each.a in nodes and each.b in nodes),
    )
