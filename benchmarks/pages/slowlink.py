"""A job with a network straggler beside a healthy one: AIMD's one window, A2TP's two, and a fixed one.

As `stragglers`, but the straggling job's last worker computes as fast as all others, and its link is slow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.pages.stragglers import WORKERS, job, measure
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    column,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import VirtualSettings

CONTROLS = ("fixed", "aimd", "a2tp")
SLOTS = (128, 512)
FACTORS = (1, 4, 16)
"""How many times as slow the slow link is."""
RATE_BPS = 10e9
ITERATIONS = 20
SEEDS = (1, 2, 3, 4, 5)
SLOW_HOST = f"h{2 * WORKERS}"


def scenarios(quick: bool) -> list[Scenario]:
    """Return each control and number of slots with each factor."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Scenario]:
    iterations = 14 if quick else ITERATIONS
    for slots, control, factor in itertools.product(
        SLOTS[:1] if quick else SLOTS, CONTROLS, FACTORS[::2] if quick else FACTORS
    ):
        for seed in SEEDS[:1] if quick else SEEDS:
            healthy = job("healthy", control, iterations=iterations)
            straggling = job("straggling", control, iterations=max(4, 2 * iterations // factor))
            yield Scenario(
                labels={"slots": slots, "control": control, "factor": factor, "seed": seed},
                jobs=(healthy, straggling),
                settings=VirtualSettings(slots=slots, seed=seed, samples=0),
                rates={SLOW_HOST: RATE_BPS / factor},
            )


def cost(rows: Sequence[ResultRow], slots: int, control: str, factor: int, name: str) -> list[float]:
    """Return a job's iterations relative to those beside an equal job with fixed windows, seed by seed."""
    of = column(rows, f"{name}_iteration_s", slots=slots, control=control, factor=factor)
    base = column(rows, f"{name}_iteration_s", slots=slots, control=CONTROLS[0], factor=1)
    return [one / other for one, other in zip(of, base, strict=True)]


def _settings(rows: Sequence[ResultRow]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((int(number(row, "slots")), int(number(row, "factor"))) for row in rows))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table of all settings."""
    lines = []
    for (slots, factor), control in itertools.product(_settings(rows), CONTROLS):
        of = selected(rows, slots=slots, control=control, factor=factor)
        lines.append(
            [
                f"{slots}, {factor}",
                control,
                *(spread(cost(rows, slots, control, factor, name)) for name in ("healthy", "straggling")),
                *(spread(column(of, f"{name}_share"), ".0%") for name in ("healthy", "straggling")),
            ]
        )
    heads = ["slots, factor", "control", "healthy", "straggling", "in the switch: healthy", "straggling"]
    return markdown(heads, lines)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the healthy job's time over the factor."""
    slots = min(slots for slots, _ in _settings(rows))
    factors = [factor for of, factor in _settings(rows) if of == slots]
    lines = {
        f"{control}, {name}": [
            (float(place), fmean(cost(rows, slots, control, factor, name)))
            for place, factor in enumerate(factors)
        ]
        for control in CONTROLS
        for name in ("healthy", "straggling")
    }
    path = directory / "slowlink.svg"
    draw_lines(
        lines,
        path,
        x="slow link's factor",
        y="iteration, relative",
        title=f"{slots} slots",
        x_ticks=ticks(factors),
        dashed=[name for name in lines if name.endswith("straggling")],
    )
    return [path]


EXPERIMENT = Experiment(
    name="slowlink",
    title="A network straggler beside a healthy job",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
