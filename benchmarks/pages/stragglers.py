"""Cost of a job with a straggler to a healthy one beside it, with AIMD's one window and with A2TP's two.

The straggling job's quick ranks fill slots that wait for the slow one. What the healthy job sends then finds
them taken and goes through its fallback server. A2TP lets a job that waits give up slots.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

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
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Straggler, float32_bytes

WORKERS = 4
WINDOW = 64
TENSORS = (4096,) * 12
COMPUTE_S = 200e-6
ITERATIONS = 25
SETTLED = 10
"""Iterations of the healthy job that are left out, while windows find their size."""
CONTROLS: Final[tuple[str, ...]] = ("aimd", "a2tp")
SLOTS = (128, 256, 512)
FACTORS = (1, 2, 4, 8)
SEEDS = (1, 2, 3, 4, 5)


def job(name: str, control: str, *, iterations: int, factor: int = 1) -> Job:
    """Return a job, one of whose ranks takes `factor` times as long."""
    return Job(
        name=name,
        workers=WORKERS,
        window=WINDOW,
        congestion=control,
        numbers="fixed",
        iterations=iterations,
        layers_bytes=float32_bytes(TENSORS),
        compute_s=COMPUTE_S,
        jitter=0.05,
        straggler=Straggler(1, COMPUTE_S * factor) if factor > 1 else None,
    )


def scenarios(quick: bool) -> list[Scenario]:
    """Return each control and number of slots with each job alone and both together."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Scenario]:
    iterations = SETTLED + 4 if quick else ITERATIONS
    for control in CONTROLS:
        for slots in SLOTS[1:2] if quick else SLOTS:
            for seed in SEEDS[:1] if quick else SEEDS:
                settings = VirtualSettings(slots=slots, seed=seed, samples=0)
                labels: ResultRow = {"control": control, "slots": slots, "seed": seed}
                healthy = job("healthy", control, iterations=iterations)
                yield Scenario(labels={**labels, "factor": 0}, jobs=(healthy,), settings=settings)
                for factor in FACTORS[-1:] if quick else FACTORS:
                    # As long as the healthy job, and longer: it computes for longer, too.
                    lasts = max(iterations // 2, 2 * iterations // factor)
                    straggling = job("straggling", control, iterations=lasts, factor=factor)
                    of = {**labels, "factor": factor}
                    yield Scenario(labels=of, jobs=(straggling,), settings=settings)
                    yield Scenario(labels=of, jobs=(healthy, straggling), settings=settings)


def measure(report: Report) -> ResultRow:
    """Return mean iteration times, shares of contributions that slots took in, and sums pulled."""
    jobs = {job.name: job for job in report.jobs}
    row: dict[str, float | int | str | None] = {"jobs": "+".join(jobs)}
    straggling = jobs.get("straggling")
    if healthy := jobs.get("healthy"):
        until_s = float("inf") if straggling is None else straggling.jct_s or 0.0
        row["healthy_iteration_s"] = _settled(healthy.iteration_s, until_s)
        row["healthy_share"] = healthy.aggregated_share
    if straggling:
        row["straggling_iteration_s"] = straggling.mean_iteration_s
        row["straggling_share"] = straggling.aggregated_share
        row["straggling_pulled"] = straggling.outcomes["pulled"] / straggling.iterations
    return row


def _settled(iteration_s: Sequence[float], until_s: float) -> float | None:
    """Return the mean iteration after the first few, and before the other job has ended."""
    ends_s = 0.0
    taken = []
    for place, took_s in enumerate(iteration_s):
        ends_s += took_s
        if place >= SETTLED and ends_s <= until_s:
            taken.append(took_s)
    return fmean(taken) if taken else None


class Cost(NamedTuple):
    """Iterations of both jobs side by side relative to each alone, seed by seed."""

    healthy: list[float]
    straggling: list[float]


def cost(rows: Sequence[ResultRow], control: str, slots: int, factor: int) -> Cost:
    """Return the slowdown of both jobs side by side."""

    def times(jobs: str, name: str, at: int) -> list[float]:
        labels: ResultRow = {"control": control, "slots": slots, "factor": at, "jobs": jobs}
        return column(rows, f"{name}_iteration_s", **labels)

    found = []
    for name, at in (("healthy", 0), ("straggling", factor)):
        both, alone = times("healthy+straggling", name, factor), times(name, name, at)
        found.append([one / other for one, other in zip(both, alone, strict=True)])
    return Cost(*found)


def _settings(rows: Sequence[ResultRow]) -> list[tuple[int, int]]:
    """Return the slots and factors that were run."""
    found = [(int(number(row, "slots")), int(number(row, "factor"))) for row in rows if row["factor"]]
    return sorted(dict.fromkeys(found))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per number of slots."""
    parts = []
    for slots, settings in itertools.groupby(_settings(rows), key=lambda at: at[0]):
        lines = []
        for (_, factor), control in itertools.product(settings, CONTROLS):
            of = selected(rows, control=control, slots=slots, factor=factor, jobs="healthy+straggling")
            both = cost(rows, control, slots, factor)
            lines.append(
                [
                    f"{factor}",
                    control,
                    spread(both.healthy),
                    spread(both.straggling),
                    spread(column(of, "healthy_share"), ".0%"),
                    spread(column(of, "straggling_share"), ".0%"),
                    spread(column(of, "straggling_pulled"), ".1f"),
                ]
            )
        columns = ["factor", "control", "healthy", "straggling", "in the switch: healthy", "straggling"]
        parts.append(f"### {slots} slots\n\n{markdown([*columns, 'pulled'], lines)}")
    return "\n\n".join(parts)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw both jobs' slowdown over the slots, for the slowest straggler."""
    slowest = max(factor for _, factor in _settings(rows))
    used = [slots for slots, factor in _settings(rows) if factor == slowest]
    lines = {}
    for control, (place, name) in itertools.product(CONTROLS, enumerate(("healthy", "straggling"))):
        lines[f"{control}, {name} job"] = [
            (float(at), fmean(cost(rows, control, slots, slowest)[place])) for at, slots in enumerate(used)
        ]
    path = directory / "stragglers.svg"
    draw_lines(
        lines,
        path,
        x="slots of the switch",
        y="iteration, relative to alone",
        title=f"one worker computes {slowest} times as long",
        x_ticks=ticks(used),
        dashed=[name for name in lines if name.endswith("straggling job")],
    )
    return [path]


EXPERIMENT = Experiment(
    name="stragglers",
    title="A straggling job beside a healthy one: A2TP's windows against AIMD's",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
