"""Plots of allocation decisions."""

from __future__ import annotations

from pathlib import Path

from bmv2_topos.draw import positions
from controller.figures import new_figure, save
from controller.policies.memory.policy import MemoryDivision, MemoryProblem
from controller.policies.memory.regions import SlotStatus
from controller.policies.placement.flows import FlowState
from controller.vocabulary.lists import by_key

HATCH = {SlotStatus.GRANTED: "", SlotStatus.SHARED: "//", SlotStatus.ENDED: "xx"}


def draw_memory(problem: MemoryProblem, division: MemoryDivision, path: Path) -> None:
    """Draw which jobs have which slots of each switch; shared slots are hatched. Raises PlotsMissing."""
    used = [
        each for each in problem.topology.switches if any(each.name in on for on in division.regions.values())
    ]
    colours = {job.name: f"C{number % 10}" for number, job in enumerate(problem.jobs)}
    figure, (panel,) = new_figure(1)
    figure.set_size_inches(8, 1.6 + 0.45 * max(1, len(used)))
    for row, switch in enumerate(used):
        sharers = by_key(
            ((region.offset, region.size), name)
            for name, on in division.regions.items()
            if (region := on.get(switch.name)) is not None and region.size
        )
        panel.barh(row, switch.slots, color="0.93", height=0.8)
        for (offset, size), names in sharers.items():
            for part, name in enumerate(names):
                height = 0.8 / len(names)
                low = row - 0.4 + part * height
                panel.barh(
                    low,
                    size,
                    left=offset,
                    height=height,
                    align="edge",
                    color=colours[name],
                    hatch=HATCH[division.standing[name]],
                    edgecolor="white",
                    linewidth=0.5,
                )
    panel.set_yticks(range(len(used)), [switch.name for switch in used])
    panel.invert_yaxis()
    panel.set_xlabel("slots (hatched: shared, a band for each job)")
    for name, colour in colours.items():
        panel.barh(0, 0, color=colour, label=name)
    if len(colours) <= 30:
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


def draw_placement(state: FlowState, path: Path) -> None:
    """Draw three charts: each server's GPUs by job, each job's rate, and each link's load.

    Raises PlotsMissing.
    """
    figure, (servers, rates, links) = new_figure(3)
    figure.set_size_inches(9, 7.5)
    names = [server.name for server in state.topology.servers]
    base = dict.fromkeys(names, 0)
    for number, job in enumerate(state.jobs):
        counts = {host: job.servers.count(host) * job.gpus_per_worker for host in job.hosts}
        servers.bar(
            [names.index(host) for host in counts],
            list(counts.values()),
            bottom=[base[host] for host in counts],
            color=f"C{number % 10}",
            label=job.name,
        )
        for host, count in counts.items():
            base[host] += count
    servers.step(
        range(len(names)),
        [server.gpus for server in state.topology.servers],
        where="mid",
        color="0.4",
        linewidth=1,
    )
    if len(names) <= 64:
        servers.set_xticks(range(len(names)), names, rotation=90, fontsize="x-small")
    servers.set_ylabel("GPUs")
    if len(state.jobs) <= 20:
        servers.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    known = [(job.name, float(bps) / 1e9) for job, bps in zip(state.jobs, state.steady.rate_bps, strict=True)]
    levels = [(name, bps) for name, bps in known if bps != float("inf")]
    colours = [f"C{number % 10}" for number, (_, bps) in enumerate(known) if bps != float("inf")]
    rates.bar(range(len(levels)), [bps for _, bps in levels], color=colours)
    if len(levels) <= 40:
        rates.set_xticks(range(len(levels)), [name for name, _ in levels], rotation=30, fontsize="small")
    rates.set_ylabel("rate (Gb/s)")
    capacity = [link.capacity_bps for link in state.topology.links for _ in range(2)]
    full = sorted((load / most for load, most in zip(state.load_bps, capacity, strict=True)), reverse=True)
    links.fill_between(range(len(full)), [100 * part for part in full], step="mid", alpha=0.6)
    links.set_ylabel("link load (%)")
    links.set_xlabel("directions of links, fullest first")
    links.set_ylim(0, 105)
    save(figure, path)


MOST_TREES = 6


def draw_trees(state: FlowState, path: Path) -> None:
    """Draw the trees of the first `MOST_TREES` jobs that have a tree; switches that sum are filled.

    Raises PlotsMissing.
    """
    routed = [job for job in state.jobs if job.tree is not None][:MOST_TREES]
    figure, panels = new_figure(max(1, len(routed)))
    figure.set_size_inches(9, 0.8 + 2.4 * max(1, len(routed)))
    places = positions(state.topology)
    for job, panel in zip(routed, panels, strict=False):
        assert job.tree is not None
        for link in state.topology.links:
            ends = [places[link.a], places[link.b]]
            panel.plot(*zip(*ends, strict=True), color="0.9", linewidth=0.6, zorder=1)
        hosts = {(host, state.topology.rack_of[host]) for host in job.hosts}
        for a, b in (*job.tree.parents.items(), *hosts):
            panel.plot(*zip(places[a], places[b], strict=True), color="C0", linewidth=1.2, zorder=2)
        for switch in state.topology.switches:
            sums, in_tree = switch.name in job.tree.aggregators, switch.name in job.tree.switches
            panel.scatter(
                *places[switch.name],
                s=60,
                marker="s",
                zorder=3,
                linewidth=1.2,
                facecolor="C1" if sums else "white",
                edgecolor=("C1" if switch.aggregates else "0.3") if in_tree else "0.85",
            )
            if len(state.topology.switches) <= 30:
                panel.annotate(
                    switch.name,
                    places[switch.name],
                    (0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize="x-small",
                )
        used = [places[host] for host in job.hosts]
        panel.scatter([x for x, _ in used], [y for _, y in used], s=12, color="C0", zorder=3)
        if job.fallback:
            panel.scatter(*places[job.fallback], s=30, marker="^", color="C3", zorder=3)
        gbps = state.rate_bps(job) / 1e9
        panel.set_title(f"{job.name}: {gbps:.3g} Gb/s (filled: sums, triangle: fallback)", fontsize="small")
        panel.axis("off")
    save(figure, path)
