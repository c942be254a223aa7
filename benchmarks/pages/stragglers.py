"""A job with a straggler beside a healthy one: AIMD's one window against A2TP's two.

One of its workers computes slowly, or has a slow link.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final

from bmv2_topos.harness import Experiment, ResultRow, Scenario, column, grouped, markdown, selected, spread
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Straggler, float32_bytes

WORKERS: Final = 4
TENSORS: Final = (4096,) * 12
COMPUTE_S: Final = 200e-6
SETTLED: Final = 10
"""Iterations of the healthy job that are left out, while windows find their size."""
COMPUTES, LINK = "worker", "link"
"""The slow part."""
CONTROLS: Final = {COMPUTES: ("aimd", "a2tp"), LINK: ("fixed", "aimd", "a2tp")}
SLOTS: Final = {COMPUTES: (128, 256, 512), LINK: (128, 512)}
FACTORS: Final = {COMPUTES: (1, 2, 4, 8), LINK: (1, 4, 16)}
"""Factors of its slowness."""
ITERATIONS: Final = {COMPUTES: 25, LINK: 20}
SEEDS: Final = (1, 2, 3, 4, 5)
RATE_BPS: Final = 10e9
SLOW_HOST: Final = f"h{2 * WORKERS}"
JOBS: Final = ("healthy", "straggling")


def job(name: str, control: Any, iterations: int, factor: int = 1) -> Job:
    """Return a job with one rank that computes `factor` times as long."""
    return Job(
        name=name,
        workers=WORKERS,
        window=64,
        congestion=control,
        numbers="fixed",
        iterations=iterations,
        layers_bytes=float32_bytes(TENSORS),
        compute_s=COMPUTE_S,
        jitter=0.05,
        straggler=Straggler(1, COMPUTE_S * factor) if factor > 1 else None,
    )


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return each kind of straggler with each control, number of slots and factor; `quick`: one of each."""
    for slow, controls in CONTROLS.items():
        factors, slots = FACTORS[slow], SLOTS[slow]
        for size in slots[-2:-1] if quick else slots:
            for control in controls:
                for seed in SEEDS[:1] if quick else SEEDS:
                    labels: ResultRow = {"slow": slow, "slots": size, "control": control, "seed": seed}
                    chosen = (factors[0], factors[-1]) if quick else factors
                    yield from _runs(labels, chosen, SETTLED + 4 if quick else ITERATIONS[slow])


def _runs(labels: ResultRow, factors: Sequence[int], iterations: int) -> Iterator[Scenario]:
    """Return the runs side by side, and runs of jobs alone where the straggler is a worker."""
    control, by_link = labels["control"], labels["slow"] == LINK
    settings = VirtualSettings(slots=int(str(labels["slots"])), seed=int(str(labels["seed"])), samples=0)
    healthy = job(JOBS[0], control, iterations)
    if not by_link:
        yield Scenario(
            labels={**labels, "factor": 0, "jobs": healthy.name}, jobs=(healthy,), settings=settings
        )
    for factor in factors:
        at: ResultRow = {**labels, "factor": factor, "jobs": "+".join(JOBS)}
        if by_link:
            other = job(JOBS[1], control, max(4, 2 * iterations // factor))
            rates = {SLOW_HOST: RATE_BPS / factor}
            yield Scenario(labels=at, jobs=(healthy, other), settings=settings, rates=rates)
        else:
            # As long as the healthy job, and longer: it computes for longer, too.
            other = job(JOBS[1], control, max(iterations // 2, 2 * iterations // factor), factor)
            yield Scenario(labels={**at, "jobs": other.name}, jobs=(other,), settings=settings)
            yield Scenario(labels=at, jobs=(healthy, other), settings=settings)


def measure(report: Report) -> ResultRow:
    """Return mean iteration times, shares of contributions added in slots, and sums pulled."""
    jobs = {job.name: job for job in report.jobs}
    row: dict[str, float | int | str | None] = {}
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
    """Return the mean iteration time after the first few, until the other job has ended."""
    times = list(zip(iteration_s, itertools.accumulate(iteration_s), strict=True))
    taken = [took_s for took_s, end_s in times[SETTLED:] if end_s <= until_s]
    return fmean(taken) if taken else None


def cost(
    rows: Sequence[ResultRow], slow: str, slots: int, control: str, factor: int, name: str
) -> list[float]:
    """Return the ratio of a job's iterations side by side to the base's, seed by seed.

    The base is the job alone, or, where a link is slow, beside one without a slow link, with fixed windows.
    """
    here = selected(rows, slow=slow, slots=slots)
    base: ResultRow = {"control": control, "jobs": name, "factor": factor * (name == JOBS[1])}
    if slow == LINK:
        base = {"control": "fixed", "factor": 1}
    both = column(here, f"{name}_iteration_s", control=control, factor=factor, jobs="+".join(JOBS))
    return [one / other for one, other in zip(both, column(here, f"{name}_iteration_s", **base), strict=True)]


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table for each kind of straggler."""
    parts = []
    for slow in CONTROLS:
        found = grouped(selected(rows, slow=slow, jobs="+".join(JOBS)), "slots", "factor", "control")
        lines = [
            [
                f"{slots}, {factor}",
                control,
                *(spread(cost(rows, slow, slots, control, factor, name)) for name in JOBS),
                *(spread(column(group, f"{name}_share"), ".0%") for name in JOBS),
                spread(column(group, "straggling_pulled"), ".1f"),
            ]
            for (slots, factor, control), group in sorted(found.items(), key=lambda each: each[0][:2])
        ]
        heads = ["slots, factor", "control", *JOBS, "in the switch: healthy", "straggling", "pulled"]
        parts.append(f"### A slow {slow}\n\n{markdown(heads, lines)}")
    return "\n\n".join(parts)


EXPERIMENT = Experiment(
    name="stragglers",
    title="A straggling job beside a healthy one: A2TP's windows against AIMD's",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
