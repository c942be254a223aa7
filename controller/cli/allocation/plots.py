"""Pictures of what allocation policies decide."""

from __future__ import annotations

from pathlib import Path

from controller.memory.policy import Answer, Question, Standing
from controller.placement.flows import State
from controller.simulator.plots import new_figure, save

HATCH = {Standing.GRANTED: "", Standing.SHARED: "//", Standing.ENDED: "xx"}


def draw_memory(question: Question, answer: Answer, path: Path) -> None:
    """Draw which slots of each switch are whose; shared ones are hatched. Raises PlotsMissing."""
    used = [
        each for each in question.cluster.switches if any(each.name in on for on in answer.regions.values())
    ]
    colours = {job.name: f"C{number % 10}" for number, job in enumerate(question.jobs)}
    figure, (panel,) = new_figure(1)
    figure.set_size_inches(8, 1.6 + 0.45 * max(1, len(used)))
    for row, switch in enumerate(used):
        sharers: dict[tuple[int, int], list[str]] = {}
        for name, on in answer.regions.items():
            if (region := on.get(switch.name)) is not None and region.size:
                sharers.setdefault((region.offset, region.size), []).append(name)
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
                    hatch=HATCH[answer.standing[name]],
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


def draw_placement(state: State, path: Path) -> None:
    """Draw each server's GPUs by job, the rates, and how full the links are. Raises PlotsMissing."""
    figure, (servers, rates, links) = new_figure(3)
    figure.set_size_inches(9, 7.5)
    names = [server.name for server in state.cluster.servers]
    base = dict.fromkeys(names, 0)
    for number, job in enumerate(state.jobs):
        counts = {host: job.servers.count(host) * job.gpus for host in job.hosts}
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
        [server.gpus for server in state.cluster.servers],
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
    capacity = [link.rate_bps for link in state.cluster.links for _ in range(2)]
    full = sorted((load / most for load, most in zip(state.load_bps, capacity, strict=True)), reverse=True)
    links.fill_between(range(len(full)), [100 * part for part in full], step="mid", alpha=0.6)
    links.set_ylabel("link load (%)")
    links.set_xlabel("directions of links, fullest first")
    links.set_ylim(0, 105)
    save(figure, path)
