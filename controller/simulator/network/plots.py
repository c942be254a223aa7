"""Plots of a simulation over time: jobs and deadlines, which jobs own each switch's slots, and rates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from controller.figures import new_figure, save
from controller.policies.memory.regions import SlotStatus
from controller.simulator.network.run import NetworkLog, NetworkResult
from controller.vocabulary.lists import by_key

MOST_JOBS, MOST_SWITCHES = 60, 3


def draw(simulated: NetworkResult, path: Path) -> None:
    """Draw a simulation with a log. Raises PlotsMissing."""
    log = simulated.log
    assert log is not None, "`simulated` has no log: simulate with `keep_log`"
    switches = _busiest(log)
    figure, panels = new_figure(2 + len(switches))
    colours = {name: f"C{number % 10}" for number, name in enumerate(simulated.jobs)}
    shown = min(len(simulated.jobs), MOST_JOBS)
    figure.set_size_inches(9, 2.5 + 0.14 * shown + 2.0 * (1 + len(switches)))
    _draw_jobs(panels[0], simulated, colours)
    for panel, switch in zip(panels[1:-1], switches, strict=True):
        _draw_memory(panel, simulated, log, switch, colours)
    _draw_rates(panels[-1], simulated, log, colours)
    for panel in panels:
        panel.set_xlim(0, max(simulated.result.end_s, 1e-9))
    panels[-1].set_xlabel("time (s)")
    save(figure, path)


def _busiest(log: NetworkLog) -> list[str]:
    """Return the switches at which the largest numbers of jobs have slots, the largest number first."""
    having = {
        (switch, name): None
        for _, _, division in log.memory
        for name, regions in division.regions.items()
        for switch, region in regions.items()
        if region.size
    }
    return [switch for switch, _ in Counter(switch for switch, _ in having).most_common(MOST_SWITCHES)]


def _draw_jobs(panel: Any, simulated: NetworkResult, colours: Mapping[str, str]) -> None:
    ended = sorted(simulated.result.jobs, key=lambda each: each.spec.arrival_s)[:MOST_JOBS]
    for row, each in enumerate(ended):
        name, submit_s = each.spec.name, each.spec.arrival_s
        panel.barh(row, each.start_s - submit_s, left=submit_s, height=0.25, color="0.8")
        hatch = "" if each.completed else "xx"
        panel.barh(
            row,
            each.finish_s - each.start_s,
            left=each.start_s,
            height=0.7,
            color=colours[name],
            hatch=hatch,
            edgecolor="white",
            linewidth=0.3,
        )
        due_s = simulated.jobs[name].due_s
        if due_s is not None:
            late = simulated.misses(each)
            panel.plot(
                [due_s, due_s], [row - 0.45, row + 0.45], color="C3" if late else "black", linewidth=1.6
            )
    panel.set_yticks(range(len(ended)), [each.spec.name for each in ended], fontsize="xx-small")
    panel.invert_yaxis()
    panel.set_title("jobs: grey while waiting; a line is the deadline (red: missed)", fontsize="small")


def _draw_memory(
    panel: Any, simulated: NetworkResult, log: NetworkLog, switch: str, colours: Mapping[str, str]
) -> None:
    times = [*(at_s for at_s, _, _ in log.memory), simulated.result.end_s]
    for (begin_s, end_s), (_, _, division) in zip(pairwise(times), log.memory, strict=True):
        sharers: dict[tuple[int, int], int] = {}
        for name, regions in division.regions.items():
            region = regions.get(switch)
            if region is None or not region.size:
                continue
            own = division.standing[name] is SlotStatus.GRANTED
            span = (begin_s, end_s - begin_s), (region.offset, region.size)
            if own:
                panel.broken_barh([span[0]], span[1], color=colours[name])
            else:
                sharers[span[1]] = sharers.get(span[1], 0) + 1
        for place, count in sharers.items():
            panel.broken_barh([(begin_s, end_s - begin_s)], place, color="0.9" if count == 1 else "0.8")
    panel.set_ylim(0, simulated.topology.switch[switch].slots)
    panel.set_title(f"slots of {switch}: in colour granted, grey shared", fontsize="small")


def _draw_rates(panel: Any, simulated: NetworkResult, log: NetworkLog, colours: Mapping[str, str]) -> None:
    found = by_key(
        (name, (at_s, rate / 1e9 if math.isfinite(rate) else math.nan))
        for at_s, levels in log.levels
        for name, rate in levels.items()
    )
    finish_s = {each.spec.name: each.finish_s for each in simulated.result.jobs}
    for name, points in list(found.items())[:MOST_JOBS]:
        steps = [*points, (finish_s[name], points[-1][1])]
        panel.step(
            [at for at, _ in steps],
            [rate for _, rate in steps],
            where="post",
            color=colours[name],
            linewidth=1,
        )
    panel.set_ylabel("Gb/s while it sends")
    panel.set_ylim(bottom=0)
