"""Positions of a topology's nodes in a drawing: pure functions.

A switch's height is its distance from the nearest host for workers, so that racks are below spines, and
spines below cores, whichever switch is the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

from controller.vocabulary import Topology

Position = tuple[float, float]


def positions(topology: Topology) -> Mapping[str, Position]:
    """Return the position (x, y) of each node.

    Hosts of workers are at height 0, one unit from each other, in the order of racks; other hosts are above
    their switch. A switch's height is its distance from the nearest host of workers; without such hosts, from
    the root.
    """
    workers = topology.servers_for("worker")
    first = {topology.rack_of[host]: 1 for host in workers} or {topology.root: 1}
    heights = topology.distances(first)
    side_by_side = [host for hosts in _by_rack(topology, workers).values() for host in hosts]
    placed = {host: (float(at), 0.0) for at, host in enumerate(side_by_side)}
    width = max(len(placed), 2) - 1.0
    for height in range(1, max(heights.values()) + 1):
        layer = [switch for switch, level in heights.items() if level == height]
        for at, switch in enumerate(sorted(layer, key=lambda name: _centre(topology, name, placed))):
            placed[switch] = (width * (at + 0.5) / len(layer), float(height))
    others = [host.name for host in topology.servers if host.role != "worker"]
    for switch, hosts in _by_rack(topology, others).items():
        x, y = placed[switch]
        for at, host in enumerate(hosts):
            placed[host] = (x + 0.8 * (at - (len(hosts) - 1) / 2), y + 0.7)
    return placed


def _by_rack(topology: Topology, hosts: Iterable[str]) -> dict[str, list[str]]:
    racks: dict[str, list[str]] = {}
    for host in hosts:
        racks.setdefault(topology.rack_of[host], []).append(host)
    return racks


def _centre(topology: Topology, switch: str, placed: Mapping[str, Position]) -> float:
    below = [link.other(switch) for link in topology.ports[switch].values()]
    return fmean([placed[name][0] for name in below if name in placed] or [0.0])
