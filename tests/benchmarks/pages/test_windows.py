"""Windows that adapt, in whole jobs in virtual time."""

from __future__ import annotations

import pytest

from benchmarks.pages.preemption_mixes import FAVOURABLE
from benchmarks.pages.windows import best_fixed, slower, tables, who_pays
from bmv2_topos.harness import ResultRow
from bmv2_topos.testbeds.virtual import Report, VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Job, Straggler, float32_bytes
from tests import effort


def communicating(name: str, congestion: str) -> Job:
    return Job(
        name=name,
        workers=8,
        window=512,
        priority=200,
        iterations=16,
        layers_bytes=float32_bytes((32768, 32768)),
        compute_s=100e-6,
        jitter=0.05,
        congestion=congestion,
        numbers="fixed",
        preempt=True,
    )


def straggling(congestion: str) -> Job:
    return Job(
        name="straggling",
        workers=8,
        window=1024,
        priority=100,
        iterations=2,
        layers_bytes=float32_bytes((65536, 65536)),
        compute_s=2e-3,
        jitter=0.1,
        straggler=Straggler(7, 6e-3),
        congestion=congestion,
        numbers="fixed",
        preempt=True,
    )


def run(congestion: str) -> Report:
    jobs = [straggling(congestion), *(communicating(f"communicating {n}", congestion) for n in (1, 2))]
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
    assert best_fixed(rows, FAVOURABLE, 128) == "fixed"
    assert slower(rows, FAVOURABLE, 128, "aimd") == pytest.approx(9 / 8)
    assert who_pays(rows, FAVOURABLE, 128, "aimd") == ("communicating 2", pytest.approx(1.5))
    assert "| 9.00 (8.50..9.50) |" in tables(rows)
