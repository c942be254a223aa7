"""Ordinary forwarding of a topology: every host reaches every other on a shortest path. Pure functions."""

from __future__ import annotations

from controller.switches import forwarding
from controller.switches.entries import TableEntry
from controller.switches.model import SWITCH_IP, SWITCH_MAC
from controller.vocabulary import Topology


def entries(topology: Topology, switch: str) -> list[TableEntry]:
    """Return a switch's rows: one for each host's MAC, and its own address. Nothing is flooded."""
    bridges = [
        forwarding.bridge(topology.mac(host.name), next_port(topology, switch, host.name))
        for host in topology.servers
    ]
    return [forwarding.own_address(SWITCH_IP, SWITCH_MAC), *bridges]


def next_port(topology: Topology, switch: str, host: str) -> int:
    """Return the port of a switch that leads to a host on a shortest path; between several, the lowest.

    >>> from controller.vocabulary.catalog import leaf_spine
    >>> [next_port(leaf_spine(2, 2, 1), switch, "h2") for switch in ("s1", "s2", "s3", "s4")]
    [2, 2, 1, 3]
    """
    distances = _distances(topology, host)
    ports = topology.ports[switch]
    return min(ports, key=lambda port: (distances.get(ports[port].other(switch), len(distances)), port))


def _distances(topology: Topology, host: str) -> dict[str, int]:
    """Return how many links each switch, and the host itself, is away."""
    return {host: 0} | topology.distances({topology.rack_of[host]: 1})
