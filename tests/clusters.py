"""Clusters that tests change."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from controller.vocabulary import Topology


def without(topology: Topology, nodes: Collection[str]) -> Topology:
    """Return a cluster without some nodes; servers go with their switch."""
    gone = {*nodes} | {server for server, rack in topology.rack_of.items() if rack in nodes}
    switches = tuple(each for each in topology.switches if each.name not in gone)
    return replace(
        topology,
        root=switches[0].name,
        switches=switches,
        servers=tuple(each for each in topology.servers if each.name not in gone),
        links=tuple(each for each in topology.links if not {each.a, each.b} & gone),
    )
