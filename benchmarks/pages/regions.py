"""Cost of changing a job's slots while it runs: consistently, at once, or not at all.

The controller moves one job twelve times through the memory, with and without losses, on one switch and on a
tree. A consistent change puts the new region in force from a PSN on that nobody has sent yet; a change at
once, which is how it was before, leaves the parts of sums that are under way in the old region.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.pages.preemption_mixes import communicating
from bmv2_topos.faults import ChangeRegion
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    column,
    markdown,
    number,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Link

SEEDS: Final = (1, 2, 3, 4, 5)
SLOTS: Final = 1024
SIZE: Final = 512
"""Slots of every region: as many as PSNs may be under way, so that losses cost the same in each region."""
APART: Final = (512, 0)
OVERLAPPING: Final = (512, 256, 64, 400, 128, 0)
"""Offsets of the regions that the job moves to, over and over; the last is where it begins."""
CHANGES: Final = 12
EVERY: Final = 3.3
"""Iterations from a change to the next."""
ITERATIONS: Final = 44
SHAPES: Final[Mapping[str, tuple[int, ...] | None]] = {"one switch": None, "tree of 2 x 4": (2, 4)}
PERIODS_S: Final[Mapping[tuple[str, float], float]] = {
    ("one switch", 0.0): 0.351e-3 * EVERY,
    ("one switch", 1e-3): 0.371e-3 * EVERY,
    ("one switch", 1e-2): 0.448e-3 * EVERY,
    ("tree of 2 x 4", 0.0): 0.361e-3 * EVERY,
    ("tree of 2 x 4", 1e-3): 0.389e-3 * EVERY,
    ("tree of 2 x 4", 1e-2): 0.547e-3 * EVERY,
}
"""Time from a change to the next, by network and loss: `EVERY` iterations of a run without changes."""
NONE, CONSISTENT, MIXED, AT_ONCE = "none", "consistent", "consistent, overlapping", "at once"
CHANGED: Final = (NONE, CONSISTENT, MIXED, AT_ONCE)
TARGET: Final = 1.03
"""Greatest ratio of iterations across a change to the same ones of a run without changes."""

JOB: Final = replace(communicating("job", ITERATIONS), slots=SIZE)


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Scenario]:
    for network, loss in itertools.islice(PERIODS_S, 2) if quick else PERIODS_S:
        for seed in SEEDS[:1] if quick else SEEDS:
            for changes in CHANGED:
                yield Scenario(
                    labels={"network": network, "loss": loss, "changes": changes, "seed": seed},
                    jobs=(replace(JOB, iterations=12) if quick else JOB,),
                    settings=VirtualSettings(
                        slots=SLOTS, seed=seed, samples=0, moves_at_once=changes == AT_ONCE
                    ),
                    shape=SHAPES[network],
                    link=Link("a", "b", loss=loss),
                    trunk=Link("a", "b", loss=loss),
                    faults=_changes(changes, PERIODS_S[network, loss]),
                )


def _changes(changes: str, period_s: float) -> tuple[ChangeRegion, ...]:
    if changes == NONE:
        return ()
    offsets = itertools.islice(itertools.cycle(OVERLAPPING if changes == MIXED else APART), CHANGES)
    return tuple(
        ChangeRegion(period_s * place, JOB.name, offset, SIZE)
        for place, offset in enumerate(offsets, start=1)
    )


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels, with the times of all iterations."""
    (job,) = report.jobs
    return {
        "iteration_s": job.mean_iteration_s,
        "resent": job.resent_packets,
        "pulled": job.outcomes["pulled"],
        "collided": job.outcomes["collided"],
        "fallback_bytes": job.fallback_bytes,
        **{f"iteration_{place}_s": took_s for place, took_s in enumerate(job.iteration_s)},
    }


class Slowdown(NamedTuple):
    """Iteration times relative to those of the same run without changes."""

    across: float
    others: float


def slowdown(row: ResultRow, without: ResultRow) -> Slowdown:
    """Compare a run with changes to one of the same seed without, iteration by iteration."""
    took, usual = _iterations(row), _iterations(without)
    ends = list(itertools.accumulate(took))
    period_s = PERIODS_S[str(row["network"]), number(row, "loss")]
    met = {sum(end < period_s * place for end in ends) for place in range(1, CHANGES + 1)}
    across = {place for first in met for place in (first, first + 1) if place < len(took)}
    others = set(range(len(took))) - across

    def ratio(places: set[int]) -> float:
        return sum(took[place] for place in places) / sum(usual[place] for place in places)

    return Slowdown(ratio(across), ratio(others))


def _iterations(row: ResultRow) -> list[float]:
    times: list[float] = []
    while row.get(f"iteration_{len(times)}_s") is not None:
        times.append(number(row, f"iteration_{len(times)}_s"))
    return times


def slowdowns(rows: Sequence[ResultRow], network: str, loss: float, changes: str) -> list[Slowdown]:
    """Return the slowdown of each seed."""
    of = {
        (row["changes"], row["seed"]): row for row in rows if (row["network"], row["loss"]) == (network, loss)
    }
    return [slowdown(row, of[NONE, seed]) for (kind, seed), row in of.items() if kind == changes]


def _cases(rows: Sequence[ResultRow]) -> list[tuple[str, float]]:
    return list(dict.fromkeys((str(row["network"]), number(row, "loss")) for row in rows))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table: a line per network, loss and kind of change."""
    lines = []
    for network, loss in _cases(rows):
        for changes in CHANGED:
            labels: ResultRow = {"network": network, "loss": loss, "changes": changes}
            took = [1e3 * value for value in column(rows, "iteration_s", **labels)]
            relative = slowdowns(rows, network, loss, changes) if changes != NONE else []
            lines.append(
                [
                    network,
                    f"{loss:.1%}",
                    changes,
                    f"{spread(took, '.3f')} ms",
                    spread([of.across for of in relative], ".3f") if relative else "",
                    spread([of.others for of in relative], ".3f") if relative else "",
                    spread(column(rows, "resent", **labels), ".0f"),
                    spread(column(rows, "pulled", **labels), ".0f"),
                    spread(column(rows, "collided", **labels), ".0f"),
                ]
            )
    return markdown(
        ["network", "loss", "changes", "iteration", "across", "others", "sent again", "pulled", "collided"],
        lines,
    )


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the iterations across changes, relative to none, by network and loss."""
    cases = _cases(rows)
    lines = {
        changes: [
            (float(place), statistics.fmean(of.across for of in slowdowns(rows, *case, changes)))
            for place, case in enumerate(cases)
        ]
        for changes in CHANGED[1:]
    }
    path = directory / "regions.svg"
    draw_lines(
        lines,
        path,
        x="network and loss",
        y="iterations across a change, relative to none",
        x_ticks=ticks(f"{name}\n{loss:.1%}" for name, loss in cases),
    )
    return [path]


EXPERIMENT = Experiment(
    name="regions",
    title="Changing a job's region while it runs",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
