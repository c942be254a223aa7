"""Windows that adapt, in whole jobs in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.pages.preemption_mixes import FAVOURABLE, MIXES
from benchmarks.pages.windows import best_fixed, slower, tables, who_pays
from bmv2_topos.harness import ResultRow
from bmv2_topos.testbeds.virtual import Report, VirtualSettings, VirtualTestbed, build
from tests import effort


def run(congestion: Any) -> Report:
    jobs = [
        replace(
            job, window=8 * (job.window or 1), priority=priority, congestion=congestion, preempt=True
        )  # eight times as many packets under way as in the mix, and fixed priorities
        for job, priority in zip(MIXES[FAVOURABLE], (100, 200, 200), strict=True)
    ]
    topology, placements = build(jobs, servers=True)
    settings = VirtualSettings(slots=512, seed=1, samples=0)
    return VirtualTestbed(topology, jobs, placements, settings).run()


@pytest.mark.parametrize("congestion", effort.some(["a2tp", "aimd"], every=2))
def test_no_rank_falls_behind_its_peers_for_its_own_time_outs(congestion: str) -> None:
    """One rank's window collapsed, and the mean completion time was 164 ms, with a fixed window 8 ms."""
    assert run(congestion).mean_jct_s < 1.1 * run("fixed").mean_jct_s


def rows_of(times_ms: dict[str, tuple[float, float, float]]) -> list[ResultRow]:
    """Rows of two seeds of the favourable mix, a millisecond apart, with the times of its jobs."""
    return [
        {
            "mix": FAVOURABLE,
            "slots": 128,
            "windows": windows,
            "seed": seed,
            "mean_jct_s": (sum(jobs) / 3 + seed) / 1e3,
            **{f"jct_{place}_s": (each + seed) / 1e3 for place, each in enumerate(jobs, start=1)},
        }
        for windows, jobs in times_ms.items()
        for seed in (-0.5, 0.5)
    ]


def test_adaptive_windows_are_compared_with_the_best_fixed_one() -> None:
    rows = rows_of(
        {
            "fixed, half": (10, 8, 9),
            "fixed": (12, 6, 6),
            "fixed, twice": (20, 20, 20),
            "aimd": (12, 6, 9),
            "a2tp": (12, 6, 6),
        }
    )
    assert best_fixed(rows) == "fixed"
    assert slower(rows, "aimd") == pytest.approx(9 / 8)
    assert who_pays(rows, FAVOURABLE, "aimd") == ("communicating 2", pytest.approx(1.5))
    assert "| 9.00 (8.50..9.50) |" in tables(rows)
