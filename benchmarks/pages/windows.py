"""Windows that adapt against fixed ones: the mixes of the experiment `preemption`, all else equal.

Each mix runs with fixed windows of half, once and twice its own, and with ATP's and A2TP's. The experiment
measures how much slower an adaptive window is than the best fixed one, which nobody knows beforehand.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from benchmarks.pages.preemption_mixes import FAVOURABLE, MIXES, by_job, completion
from bmv2_topos.harness import Experiment, ResultRow, Scenario, column, grouped, markdown, spread
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import CONGESTION, Job

FIXED: Final = {"fixed, half": 0.5, "fixed": 1.0, "fixed, twice": 2.0}
"""Fixed windows, as multiples of the mix's own."""
ADAPTIVE: Final = ("aimd", "a2tp")
SLOTS: Final = (128, 512)
SEEDS: Final = tuple(range(1, 11))


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return the sweep: every mix with every window."""
    mixes, slots, seeds = ((FAVOURABLE,), SLOTS[:1], SEEDS[:1]) if quick else (MIXES, SLOTS, SEEDS)
    for mix, of, windows, seed in product(mixes, slots, (*FIXED, *ADAPTIVE), seeds):
        yield Scenario(
            labels={"mix": mix, "slots": of, "windows": windows, "seed": seed},
            jobs=tuple(with_windows(job, windows) for job in MIXES[mix]),
            settings=VirtualSettings(slots=of, seed=seed, samples=0),
        )


def with_windows(job: Job, windows: str) -> Job:
    """Return the job with these windows, one of `FIXED` or `ADAPTIVE`; it may preempt."""
    if windows in ADAPTIVE:
        return replace(job, preempt=True, congestion=next(name for name in CONGESTION if name == windows))
    assert job.window is not None
    return replace(job, preempt=True, window=max(1, round(FIXED[windows] * job.window)))


def measure(report: Report) -> ResultRow:
    """Return completion times, and what was sent again and dropped."""
    resent = sum(job.resent_packets for job in report.jobs)
    return completion(report, resent_packets=resent, dropped_packets=report.dropped_packets)


def best_fixed(rows: Sequence[ResultRow]) -> str:
    """Return the fixed window with the shortest mean JCT in the rows of one mix and number of slots."""
    return min(FIXED, key=lambda windows: statistics.mean(column(rows, "mean_jct_s", windows=windows)))


def slower(rows: Sequence[ResultRow], windows: str, name: str = "mean_jct_s") -> float:
    """Return the mean of a column relative to that with the best fixed window."""
    best = statistics.mean(column(rows, name, windows=best_fixed(rows)))
    return statistics.mean(column(rows, name, windows=windows)) / best


def who_pays(rows: Sequence[ResultRow], mix: str, windows: str) -> tuple[str, float]:
    """Return the job that is slowed down most against the best fixed window, and the ratio of its times."""
    return by_job(mix, lambda name: slower(rows, windows, name))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return the mean completion times, and those of adaptive windows relative to the best fixed one."""
    times, ratios = [], []
    for (mix, slots), of in grouped(rows, "mix", "slots").items():
        found = [column(of, "mean_jct_s", windows=windows) for windows in (*FIXED, *ADAPTIVE)]
        times.append([mix, f"{slots}", *(spread([1e3 * time_s for time_s in times_s]) for times_s in found)])
        pays = [(slower(of, windows), *who_pays(of, mix, windows)) for windows in ADAPTIVE]
        cells = [cell for all_, job, most in pays for cell in (f"**{all_:.2f}**", f"{job}, {most:.2f}")]
        ratios.append([mix, f"{slots}", best_fixed(of), *cells])
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
