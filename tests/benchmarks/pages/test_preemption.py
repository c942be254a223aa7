from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.pages import preemption
from benchmarks.pages.preemption import gains, tables, worst_job
from benchmarks.pages.preemption_mixes import (
    EQUAL,
    FAVOURABLE,
    FCFS,
    INVERTED,
    LOWEST,
    MIXES,
    PREEMPT,
    STARVATION,
    WITHOUT,
)
from bmv2_topos.harness import ResultRow, Value, selected
from bmv2_topos.testbeds.virtual import Report, VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Job, Straggler, float32_bytes


def run(jobs: Sequence[Job], slots: int, seed: int = 1) -> Report:
    topology, placements = build(jobs, servers=True)
    settings = VirtualSettings(slots=slots, seed=seed, samples=0)
    return VirtualTestbed(topology, jobs, placements, settings).run()


def small(job: Job, iterations: int) -> Job:
    """Half the tensors of a job of the experiment, fewer iterations, and far more in flight than slots."""
    assert job.window is not None
    tensors = tuple(length // 2 for length in job.tensors)
    return replace(job, iterations=iterations, layers_bytes=float32_bytes(tensors), window=8 * job.window)


def both(jobs: Sequence[Job], slots: int) -> tuple[Report, Report]:
    """First come first served, and with preemption."""
    fcfs, preempt = (
        run([replace(job, preempt=preempts) for job in jobs], slots) for preempts in (False, True)
    )
    return fcfs, preempt


def test_preemption_lets_jobs_end_sooner_beside_a_straggling_one() -> None:
    straggling, communicating, _ = MIXES[FAVOURABLE]
    fcfs, preempt = both([small(straggling, 2), small(communicating, 12)], 128)
    assert fcfs.mean_jct_s > 1.2 * preempt.mean_jct_s
    (slow_before, fast_before), (slow, fast) = fcfs.jobs, preempt.jobs
    assert fast.jct_s is not None
    assert fast_before.jct_s is not None
    assert fast_before.jct_s > 1.5 * fast.jct_s
    assert fast.aggregated_share > fast_before.aggregated_share
    assert fast.fallback_bytes < fast_before.fallback_bytes / 4
    assert slow.jct_s is not None
    assert slow_before.jct_s is not None
    assert slow.jct_s < 1.1 * slow_before.jct_s
    assert slow.evictions > 0
    assert slow_before.evictions == fast_before.evictions == 0


def test_preemption_costs_nothing_where_nothing_is_scarce() -> None:
    jobs = [replace(small(job, 3), jitter=0.0) for job in MIXES["4 equal, communicating"][:2]]
    fcfs, preempt = both(jobs, 4096)
    assert preempt.mean_jct_s <= 1.02 * fcfs.mean_jct_s


def test_the_lowest_priority_gets_on_beside_the_highest() -> None:
    """It is not much slower than if it got no slot at all, which it can always fall back on."""
    lowest, *highest = (small(job, 2 if job is LOWEST[0] else 12) for job in LOWEST)
    jobs = [replace(job, preempt=True) for job in (lowest, *highest)]
    shared = run(jobs, 64)
    without = run([replace(jobs[0], slots=0), *jobs[1:]], 64)
    time_s, bound_s = shared.jobs[0].jct_s, without.jobs[0].jct_s
    assert time_s is not None
    assert bound_s is not None
    assert time_s < 1.05 * bound_s
    assert shared.jobs[0].aggregated_share > 0
    assert without.jobs[0].aggregated_share == 0
    assert all(job.jct_s is not None and job.jct_s > time_s for job in shared.jobs[1:])


def test_mixes_differ_and_can_be_told_apart() -> None:
    for name, jobs in {**MIXES, STARVATION: LOWEST}.items():
        assert len({job.name for job in jobs}) == len(jobs), name
        assert all(job.iterations > 1 for job in jobs)
    assert all(job.priority is None for jobs in MIXES.values() for job in jobs)
    assert any(isinstance(job.straggler, Straggler) for job in MIXES[FAVOURABLE])


def test_both_policies_run_the_same_jobs() -> None:
    for scenario in preemption.scenarios(False):
        policy = scenario.labels["policy"]
        assert all(job.preempt == (policy != FCFS) for job in scenario.jobs)
        assert (scenario.jobs[0].slots == 0) == (policy == WITHOUT)
        mix = LOWEST if scenario.labels["mix"] == STARVATION else MIXES[str(scenario.labels["mix"])]
        assert tuple(replace(job, preempt=False, slots=None) for job in scenario.jobs) == mix
        assert scenario.settings.slots == scenario.labels["slots"]


def row(mix: str, policy: str, seed: int, *jct_s: float) -> ResultRow:
    of: dict[str, Value] = {
        "mix": mix,
        "slots": 64,
        "policy": policy,
        "seed": seed,
        "mean_jct_s": sum(jct_s) / len(jct_s),
    }
    of |= {"aggregated_share": 0.5, "fallback_bytes": 2e6, "evictions": 7, "dropped_packets": 0}
    for place, value in enumerate(jct_s, start=1):
        of |= {f"jct_{place}_s": value, f"aggregated_share_{place}": 0.25, f"fallback_{place}_bytes": 1e6}
        of[f"longest_iteration_{place}_s"] = value / 2
    return of


ROWS: list[ResultRow] = [
    row(FAVOURABLE, FCFS, 1, 0.010, 0.020, 0.030),
    row(FAVOURABLE, PREEMPT, 1, 0.011, 0.010, 0.009),
    row(FAVOURABLE, EQUAL, 1, 0.012, 0.012, 0.012),
    row(FAVOURABLE, EQUAL, 2, 0.024, 0.024, 0.024),
    row(FAVOURABLE, INVERTED, 1, 0.020, 0.020, 0.020),
    row(FAVOURABLE, INVERTED, 2, 0.020, 0.020, 0.020),
    row(FAVOURABLE, FCFS, 2, 0.010, 0.020, 0.030),
    row(FAVOURABLE, PREEMPT, 2, 0.011, 0.030, 0.019),
    row(STARVATION, FCFS, 1, 0.004, 0.008),
    row(STARVATION, PREEMPT, 1, 0.006, 0.008),
    row(STARVATION, WITHOUT, 1, 0.008, 0.008),
]


def test_gains_are_ratios_of_completion_times() -> None:
    rows = selected(ROWS, mix=FAVOURABLE)
    assert gains(rows) == pytest.approx([120 / 90, 2.0, 1.0])
    assert gains(rows, PREEMPT, EQUAL)[0] == pytest.approx(108 / 90)
    assert worst_job(rows) == pytest.approx(1.1)


def test_the_page_says_what_the_rows_say() -> None:
    text = tables(ROWS)
    of = "1.33 (1.00..2.00) | 1.11 (0.83..1.67) | 1.00 (1.00..1.00)"
    assert f"| {FAVOURABLE} | 64 | 20.00 ms | {of} | **1.20** | 1.10 |" in text
    assert "| 64 | 4.00 ms | 6.00 ms | 8.00 ms | 1.50 | 0.75 | 3.00 ms | 25.0% |" in text
