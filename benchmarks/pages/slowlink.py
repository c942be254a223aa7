"""A job with a network straggler beside a healthy one: AIMD's one window, A2TP's two, and a fixed one.

As `stragglers`, but the straggling job's last worker computes as fast as all others, and its link is slow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.pages.stragglers import COMPUTE_S, TENSORS, WINDOW, WORKERS, job, measure
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

QUESTION = """
The straggler of [stragglers](stragglers.md) computes slowly; the one that A2TP's authors measure has a slow
network: UDP noise on its link. Their artifact reports that a healthy job beside such a job keeps about half
of its 100 Gb/s. How much speed does a healthy job keep here, and is that owed to A2TP's aggregator window?
"""

ABOUT = f"""
Two jobs of {WORKERS} workers each on one switch, program shared without preemption; links of
{RATE_BPS / 1e9:.0f} Gb/s and 2 µs, except that of one worker of the straggling job, which has 1 / `factor`
of this rate; packets of 64 values; {len(TENSORS)} tensors of {TENSORS[0]} elements; {COMPUTE_S * 1e6:.0f}
µs of computing per iteration, ± 5 %; up to {WINDOW} packets in flight. *Healthy* and *straggling* are the
jobs' mean iterations beside each other relative to factor 1 with a fixed window, same seed; *in the switch*
the shares of contributions that a slot took in. Means of {len(SEEDS)} seeds (least..most). `fixed` is the
ablation: no window adapts.
"""

LIMITS = """
The slow link is slow all the time, both ways, and drops nothing; noise comes and goes. **What differs from
the paper.** 10 instead of 100 Gb/s, and this project's slots and workers under both rules.
"""


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


def findings(rows: Sequence[ResultRow]) -> str:
    """Compare the controls where the link is slowest."""
    slowest = max(factor for _, factor in _settings(rows))
    lines = []
    for slots in dict.fromkeys(slots for slots, _ in _settings(rows)):
        times = {of: fmean(cost(rows, slots, of, slowest, "healthy")) for of in CONTROLS}
        pays = {of: fmean(cost(rows, slots, of, slowest, "straggling")) for of in CONTROLS}
        best = min(times, key=times.__getitem__)
        said = ", ".join(f"{time:.2f} times with `{of}`" for of, time in times.items())
        lines.append(
            f"- {slots} slots, a link {slowest} times as slow: the healthy job takes {said}. Best: `{best}`;"
            f" A2TP's second window is worth {times['aimd'] / times['a2tp']:.2f} against AIMD's one, and"
            f" {times['fixed'] / times['a2tp']:.2f} against none that adapts. The straggling job pays:"
            f" {pays['a2tp']:.2f} times with `a2tp`, {pays['aimd']:.2f} with `aimd`."
        )
    return "\n".join(lines)


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
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
