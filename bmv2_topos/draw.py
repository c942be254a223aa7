"""Draws pictures of a network and of the jobs' trees on it; needs matplotlib."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from controller.figures import blank, save
from controller.vocabulary import Topology
from controller.vocabulary.lists import by_key

Position = tuple[float, float]
_APART = 0.07
"""Distance in the drawing between the lines of two jobs on one link."""


def draw(topology: Topology, path: Path, jobs: Mapping[str, Sequence[str]] | None = None) -> None:
    """Draw a topology into a file: .png, .svg or .pdf.

    `jobs` maps the name of each job to its hosts; the job's tree, up to the root, is drawn in its own colour.
    Raises PlotsMissing without matplotlib.
    """
    at = positions(topology)
    width = max(x for x, _ in at.values()) + 1
    height = max(y for _, y in at.values()) + 1
    figure = blank(max(5.0, 0.75 * width), 1.5 * height)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.margins(0.06, 0.08)
    for link in topology.links:
        _line(axes, at[link.a], at[link.b], color="0.75", linewidth=1, zorder=1)
    for number, (name, hosts) in enumerate((jobs or {}).items()):
        shift = _APART * (number - (len(jobs or {}) - 1) / 2)
        _draw_job(axes, topology, at, hosts, label=name, color=f"C{number % 10}", shift=shift)
    _draw_nodes(axes, topology, at)
    axes.set_title(f"{topology.name or 'topology'}: trees end at {topology.root}", fontsize=10)
    if jobs:
        axes.legend(loc="upper right", fontsize=8, frameon=False)
    save(figure, path)


def job_links(topology: Topology, hosts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the links on the paths from a job's hosts to the root, as pairs (child, parent)."""
    ways = ((host, *topology.way(topology.rack_of[host], topology.root)) for host in hosts)
    return list(dict.fromkeys(ends for way in ways for ends in itertools.pairwise(way)))


def _draw_job(
    axes: Any,
    topology: Topology,
    at: Mapping[str, Position],
    hosts: Sequence[str],
    *,
    label: str,
    color: str,
    shift: float,
) -> None:
    for below, above in job_links(topology, hosts):
        ends = [(at[name][0] + shift, at[name][1]) for name in (below, above)]
        _line(axes, *ends, color=color, linewidth=2, zorder=2, label=label)
        label = "_"  # one entry in the legend


def _draw_nodes(axes: Any, topology: Topology, at: Mapping[str, Position]) -> None:
    aggregates = {switch.name: switch.aggregates for switch in topology.switches}
    for name, (x, y) in at.items():
        if name in aggregates:
            face = "#cfe3f7" if aggregates[name] else "white"
            box = {"boxstyle": "square,pad=0.35", "facecolor": face, "edgecolor": "0.25"}
        else:
            box = {"boxstyle": "round,pad=0.25", "facecolor": "#fbf3d9", "edgecolor": "0.5"}
        axes.text(x, y, name, ha="center", va="center", fontsize=9, bbox=box, zorder=3)


def _line(axes: Any, start: Position, end: Position, **style: Any) -> None:
    axes.plot([start[0], end[0]], [start[1], end[1]], **style)


def positions(topology: Topology) -> Mapping[str, Position]:
    """Return the position (x, y) of each node.

    Hosts of workers are at height 0, one unit from each other, in the order of racks; other hosts are above
    their switch. A switch's height is its distance from the nearest host of workers, so that racks are below
    spines, and spines below cores, whichever switch is the root; without such hosts, its distance from the
    root.
    """
    workers = topology.servers_for("worker")
    first = {topology.rack_of[host]: 1 for host in workers} or {topology.root: 1}
    heights = topology.distances(first)
    racks = by_key((topology.rack_of[host], host) for host in workers)
    side_by_side = [host for hosts in racks.values() for host in hosts]
    placed = {host: (float(at), 0.0) for at, host in enumerate(side_by_side)}
    width = max(len(placed), 2) - 1.0
    for height in range(1, max(heights.values()) + 1):
        layer = [switch for switch, level in heights.items() if level == height]
        for at, switch in enumerate(sorted(layer, key=lambda name: _centre(topology, name, placed))):
            placed[switch] = (width * (at + 0.5) / len(layer), float(height))
    others = [host.name for host in topology.servers if host.role != "worker"]
    for switch, hosts in by_key((topology.rack_of[host], host) for host in others).items():
        x, y = placed[switch]
        for at, host in enumerate(hosts):
            placed[host] = (x + 0.8 * (at - (len(hosts) - 1) / 2), y + 0.7)
    return placed


def _centre(topology: Topology, switch: str, placed: Mapping[str, Position]) -> float:
    below = [link.other(switch) for link in topology.ports[switch].values()]
    return fmean([placed[name][0] for name in below if name in placed] or [0.0])
