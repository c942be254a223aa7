"""Positions of a topology's nodes in a drawing: pure functions.

A switch's height is its distance from the nearest host for workers, so that racks are below spines, and
spines below cores, whichever switch is the root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from controller.vocabulary import Topology

Position = tuple[float, float]


def positions(topology: Topology) -> Mapping[str, Position]:
    """Return the position (x, y) of each node: hosts of workers at height 0, one unit from each other."""
    heights = _heights(topology)
    placed = _hosts(topology)
    width = max(len(placed), 2) - 1.0
    for height in range(1, max(heights.values()) + 1):
        layer = [switch for switch, level in heights.items() if level == height]
        for at, switch in enumerate(sorted(layer, key=lambda name: _centre(topology, name, placed))):
            placed[switch] = (width * (at + 0.5) / len(layer), float(height))
    for switch, hosts in _others(topology).items():
        x, y = placed[switch]
        for at, host in enumerate(hosts):
            placed[host] = (x + 0.8 * (at - (len(hosts) - 1) / 2), y + 0.7)
    return placed


def _hosts(topology: Topology) -> dict[str, Position]:
    """Return the positions of hosts of workers, side by side in the order of racks."""
    racks: dict[str, list[str]] = {}
    for host in topology.servers_for("worker"):
        racks.setdefault(topology.rack_of[host], []).append(host)
    hosts = [host for rack in racks.values() for host in rack]
    return {host: (float(at), 0.0) for at, host in enumerate(hosts)}


def _others(topology: Topology) -> Mapping[str, Sequence[str]]:
    """Return the hosts that are not for workers, by switch; they are drawn above their switch."""
    above: dict[str, list[str]] = {}
    for host in topology.servers:
        if host.role != "worker":
            above.setdefault(topology.rack_of[host.name], []).append(host.name)
    return above


def _heights(topology: Topology) -> Mapping[str, int]:
    """Return each switch's distance from the nearest host for workers; without such hosts, from the root."""
    first = {topology.rack_of[host]: 1 for host in topology.servers_for("worker")} or {topology.root: 1}
    return topology.distances(first)


def _centre(topology: Topology, switch: str, placed: Mapping[str, Position]) -> float:
    below = [link.other(switch) for link in topology.ports[switch].values()]
    return fmean([placed[name][0] for name in below if name in placed] or [0.0])
