"""Windows that adapt against fixed ones: the mixes of the experiment `preemption`, all else equal.

Each mix runs with fixed windows of half, once and twice its own, and with ATP's and A2TP's. The experiment
measures how much slower an adaptive window is than the best fixed one, which nobody knows beforehand.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.pages.preemption_mixes import FAVOURABLE, MIXES
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    Value,
    markdown,
    number,
    spread,
)
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job

FIXED = {"fixed, half": 0.5, "fixed": 1.0, "fixed, twice": 2.0}
"""Fixed windows, as multiples of the mix's own."""
ADAPTIVE: Final[tuple[str, ...]] = ("aimd", "a2tp")
SLOTS = (128, 512)
SEEDS = tuple(range(1, 11))


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep: every mix with every window."""
    return [
        Scenario(
            labels={"mix": mix, "slots": slots, "windows": windows, "seed": seed},
            jobs=tuple(with_windows(job, windows) for job in jobs),
            settings=VirtualSettings(slots=slots, seed=seed, samples=0),
        )
        for mix, jobs in ({FAVOURABLE: MIXES[FAVOURABLE]} if quick else MIXES).items()
        for slots in (SLOTS[:1] if quick else SLOTS)
        for windows in (*FIXED, *ADAPTIVE)
        for seed in (SEEDS[:1] if quick else SEEDS)
    ]


def with_windows(job: Job, windows: str) -> Job:
    """Return the job with these windows, one of `FIXED` or `ADAPTIVE`; it may preempt."""
    for congestion in ADAPTIVE:
        if windows == congestion:
            return replace(job, preempt=True, congestion=congestion)
    assert job.window is not None
    return replace(job, preempt=True, window=max(1, round(FIXED[windows] * job.window)))


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels; those of a job are numbered in the mix's order."""
    row: dict[str, Value] = {
        "mean_jct_s": report.mean_jct_s,
        "resent_packets": sum(job.resent_packets for job in report.jobs),
        "dropped_packets": report.dropped_packets,
    }
    return {**row, **{f"jct_{place}_s": job.jct_s for place, job in enumerate(report.jobs, start=1)}}


def _of(
    rows: Sequence[ResultRow], mix: str, slots: int, windows: str, column: str = "mean_jct_s"
) -> list[float]:
    """Return a column of the runs of one setting, seed by seed."""
    wanted = (mix, slots, windows)
    return [number(row, column) for row in rows if (row["mix"], row["slots"], row["windows"]) == wanted]


def best_fixed(rows: Sequence[ResultRow], mix: str, slots: int) -> str:
    """Return the fixed window with the shortest mean JCT."""
    return min(FIXED, key=lambda windows: statistics.mean(_of(rows, mix, slots, windows)))


def slower(
    rows: Sequence[ResultRow], mix: str, slots: int, windows: str, column: str = "mean_jct_s"
) -> float:
    """Return the mean of a column relative to that with the best fixed window."""
    best = statistics.mean(_of(rows, mix, slots, best_fixed(rows, mix, slots), column))
    return statistics.mean(_of(rows, mix, slots, windows, column)) / best


def who_pays(rows: Sequence[ResultRow], mix: str, slots: int, windows: str) -> tuple[str, float]:
    """Return the job that is slowed down most against the best fixed window, and the ratio of its times."""
    ratios = {
        job.name: slower(rows, mix, slots, windows, f"jct_{place}_s")
        for place, job in enumerate(MIXES[mix], start=1)
    }
    name = max(ratios, key=lambda job: ratios[job])
    return name, ratios[name]


def _settings(rows: Sequence[ResultRow]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((str(row["mix"]), int(number(row, "slots"))) for row in rows))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return the mean completion times, and those of adaptive windows relative to the best fixed one."""
    times, ratios = [], []
    for mix, slots in _settings(rows):
        times_s = [_of(rows, mix, slots, windows) for windows in (*FIXED, *ADAPTIVE)]
        cells = [spread([1e3 * time_s for time_s in of]) for of in times_s]
        times.append([mix, f"{slots}", *cells])
        line = [mix, f"{slots}", best_fixed(rows, mix, slots)]
        for windows in ADAPTIVE:
            name, ratio = who_pays(rows, mix, slots, windows)
            line += [f"**{slower(rows, mix, slots, windows):.2f}**", f"{name}, {ratio:.2f}"]
        ratios.append(line)
    heads = [head for windows in ADAPTIVE for head in (f"{windows} slower", "who pays")]
    return "\n\n".join(
        [
            "### Mean completion times, ms",
            markdown(["mix", "slots", *FIXED, *ADAPTIVE], times),
            "### Against the best fixed window",
            markdown(["mix", "slots", "best", *heads], ratios),
        ]
    )


EXPERIMENT = Experiment(
    name="windows",
    title="Windows that adapt against fixed ones",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
