"""Scheduler, placement, memory and trees: what each brings alone, and what all bring together.

Generated jobs as flows: placements over memory and oversubscription, routing over the share of switches that
sum, and schedulers with placement and memory, one exchanged at a time and all at once.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.pages.together_runs import (
    ECMP,
    ECMP_EVERYWHERE,
    ESTIMATE,
    ESTIMATED,
    GRID,
    MEMORY,
    MIXED,
    PLACED,
    PLACED_ON_MIXED,
    PLACEMENT,
    ROUTED,
    ROUTING,
    SHARES,
    TOGETHER,
    TREES,
    WEAK,
    Names,
    combinations,
    exchanged,
    labels_of,
    scenarios,
)
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Value,
    column,
    columns,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks

WHOLE: Final = ",.0f"

Rows = Sequence[ResultRow]
Memory = tuple[int, float]


def tables(rows: Rows) -> str:
    """Return all tables."""
    parts = {
        "Mean completion time (s) by placement": _placements(rows),
        "The same where half of the servers have links of a tenth of the rate": _mixed(rows),
        "NetPack's estimate of an iteration": _estimates(rows),
        "Scheduler, placement and memory together": _together(rows),
        "Mean rate of twelve jobs (Gb/s) by routing": _routing(rows),
    }
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts.items())


def _memory(rows: Rows) -> list[Memory]:
    found = {(row["slots"], row["trunk_bps"]) for row in rows if row["part"] in (PLACEMENT, ESTIMATE)}
    return [each for each in MEMORY if each in found]


def where(memory: Memory) -> str:
    """Return memory in words."""
    return f"{memory[0]} slots, {memory[1] / 1e9:g} Gb/s"


def placed(rows: Rows, placement: Value, memory: Memory) -> list[float]:
    """Return the mean completion times of all seeds, in seconds."""
    here = selected(rows, part=PLACEMENT)
    return column(here, "jct_s", placement=placement, slots=memory[0], trunk_bps=memory[1])


def _placements_of(rows: Rows) -> list[str]:
    found = {row["placement"] for row in selected(rows, part=PLACEMENT)}
    return [name for name in PLACED if name in found]


def _placements(rows: Rows) -> str:
    memory = _memory(rows)
    cells = [
        [name, *(spread(placed(rows, name, each), WHOLE) for each in memory)] for name in _placements_of(rows)
    ]
    return markdown(["placement", *map(where, memory)], cells)


def on_mixed(rows: Rows, placement: str, odd: bool) -> list[float]:
    """Return the mean completion times on links of two rates of all seeds, in seconds."""
    return column(selected(rows, part=MIXED), "jct_s", placement=placement, odd=odd)


def _mixed(rows: Rows) -> str:
    cells = [
        [name, *(spread(on_mixed(rows, name, odd), WHOLE) for odd in (False, True))]
        for name in PLACED_ON_MIXED
    ]
    return markdown(["placement", "2 to 24 workers", "3 to 13, odd"], cells)


def errors(rows: Rows, placement: str, memory: Memory) -> list[float]:
    """Return the relative errors of the estimates of all jobs across servers, signed."""
    here = selected(selected(rows, part=ESTIMATE), placement=placement, slots=memory[0], trunk_bps=memory[1])
    return [
        number(row, name) / number(row, name.replace(".estimate_s", ".iteration_s")) - 1
        for row in here
        for name in row
        if name.endswith(".estimate_s")
    ]


def _estimates(rows: Rows) -> str:
    cells = []
    for placement in ESTIMATED:
        for memory in _memory(rows):
            found = errors(rows, placement, memory)
            size = sorted(map(abs, found))
            parts = [f"{size[min(len(size) - 1, int(part * len(size)))]:.0%}" for part in (0.5, 0.95)]
            mean = f"{statistics.fmean(found):+.0%}"
            cells.append([f"{placement}, {where(memory)}", str(len(size)), *parts, mean])
    return markdown(["placement", "jobs across servers", "median error", "p95", "mean, signed"], cells)


def joint(rows: Rows, names: Names, name: str) -> list[float]:
    """Return a column of the runs of a scheduler, a placement and a policy for memory."""
    return column(selected(rows, part=TOGETHER), name, **labels_of(names))


def against_base(rows: Rows, names: Names, name: str = "jct_s") -> float:
    """Return the change of a mean by policies that are exchanged."""
    means = (statistics.fmean(joint(rows, each, name)) for each in (names, exchanged()))
    return next(means) / next(means) - 1


def _together(rows: Rows) -> str:
    found = [names for names in (*combinations(), WEAK) if joint(rows, names, "jct_s")]
    cells = [
        [
            " + ".join(names),
            *(spread(joint(rows, names, name), WHOLE) for name in ("jct_s", "p99_s")),
            f"{statistics.fmean(joint(rows, names, 'slowdown')):.2f}",
            f"{against_base(rows, names):+.0%}",
        ]
        for names in found
    ]
    return markdown(["policies", "mean completion, s", "p99, s", "slowdown", "against the first"], cells)


def gain(rows: Rows, topology: str, share: float, over: str) -> float:
    """Return the mean gain of GRID's rates over those of another policy, seed by seed."""
    here = selected(selected(rows, part=ROUTING), topology=topology, share=share)
    pairs = zip(column(here, GRID), column(here, over), strict=True)
    return statistics.fmean(grid / other - 1 for grid, other in pairs)


def routed(rows: Rows) -> list[tuple[str, float]]:
    """Return the topologies and shares of switches that sum."""
    found = {(row["topology"], row["share"]) for row in rows if row["part"] == ROUTING}
    return [(topology, share) for topology in TREES for share in SHARES if (topology, share) in found]


def _routing(rows: Rows) -> str:
    cells = []
    for topology, share in routed(rows):
        here = selected(selected(rows, part=ROUTING), topology=topology, share=share)
        rates = [spread(column(here, name), ".1f") for name in ROUTED]
        gains = [f"{gain(rows, topology, share, over):+.0%}" for over in (ECMP, ECMP_EVERYWHERE)]
        cells.append([f"{topology}, {share:.0%} sum", *rates, *gains])
    return markdown(["topology", *ROUTED, "grid over ecmp", "over ecmp-everywhere"], cells)


def plots(rows: Rows, directory: Path) -> list[Path]:
    """Draw the mean completion time over slots and links by placement."""
    memory = _memory(rows)
    lines = {
        name: [(float(at), statistics.fmean(placed(rows, name, each))) for at, each in enumerate(memory)]
        for name in _placements_of(rows)
    }
    path = directory / "together.svg"
    labels = ticks(where(each).replace(", ", "\n") for each in memory)
    draw_lines(lines, path, x="slots of a switch, links between", y="mean completion (s)", x_ticks=labels)
    return [path]


EXPERIMENT = Experiment(
    name="together",
    title="Scheduler, placement, memory and trees: each alone, and together",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
    plots=plots,
)
