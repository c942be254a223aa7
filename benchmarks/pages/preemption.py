"""Preemption (ESA) against first come first served: mixed jobs on one switch that has too few slots for them.

Each mix runs with all else equal: nobody may preempt; all may, with the priorities that `hostlib.priority`
measures; with the same priority for all; with the priorities inverted. The favourable mix runs with each
factor of the priority alone and without each, and with other ageing. One more set of runs has a job of the
lowest priority among others of the highest. Its time without any slot bounds what it can lose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.pages.preemption_mixes import (
    ABLATION,
    ABLATION_SLOTS,
    FAVOURABLE,
    FCFS,
    FINER_SLOTS,
    LOWEST,
    MIXES,
    MORE_SEEDS,
    POLICIES,
    PREEMPT,
    SEEDS,
    SLOTS,
    STARVATION,
    STARVATION_SLOTS,
    WITHOUT,
)
from benchmarks.pages.preemption_page import plots, tables
from bmv2_topos.harness import Experiment, ResultRow, Scenario, Value
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep: every mix, the ablation, and the runs about starvation."""
    return list(_quick() if quick else _scenarios())


def _quick() -> Iterator[Scenario]:
    for name in (*POLICIES, "ageing off"):
        yield _scenario(FAVOURABLE, MIXES[FAVOURABLE], name, SLOTS[0], 1)
    for name in (FCFS, PREEMPT, WITHOUT):
        yield _scenario(STARVATION, LOWEST, name, STARVATION_SLOTS[0], 1)


def _scenarios() -> Iterator[Scenario]:
    for mix, jobs in MIXES.items():
        favourable = mix == FAVOURABLE
        for slots in FINER_SLOTS if favourable else SLOTS:
            for seed in MORE_SEEDS if favourable else SEEDS:
                yield from (_scenario(mix, jobs, name, slots, seed) for name in POLICIES)
    for slots in ABLATION_SLOTS:
        for seed in SEEDS:
            yield from (_scenario(FAVOURABLE, MIXES[FAVOURABLE], name, slots, seed) for name in ABLATION)
    for slots in STARVATION_SLOTS:
        for seed in SEEDS:
            for name in (FCFS, PREEMPT, WITHOUT):
                yield _scenario(STARVATION, LOWEST, name, slots, seed)


def _scenario(mix: str, jobs: Sequence[Job], name: str, slots: int, seed: int) -> Scenario:
    policy = {**POLICIES, **ABLATION, WITHOUT: POLICIES[PREEMPT]}[name]
    of = [replace(job, preempt=policy.preempts) for job in jobs]
    if name == WITHOUT:
        of[0] = replace(of[0], slots=0)
    settings = VirtualSettings(
        slots=slots, seed=seed, samples=0, prioritize=policy.prioritize, ageing=policy.ageing
    )
    labels: ResultRow = {"mix": mix, "slots": slots, "policy": name, "seed": seed}
    return Scenario(labels=labels, jobs=tuple(of), settings=settings)


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels; those of a job are numbered in the mix's order."""
    row: dict[str, Value] = {
        "mean_jct_s": report.mean_jct_s,
        "aggregated_share": sum(job.aggregated_share for job in report.jobs) / len(report.jobs),
        "fallback_bytes": sum(job.fallback_bytes for job in report.jobs),
        "evictions": sum(job.evictions for job in report.jobs),
        "dropped_packets": report.dropped_packets,
    }
    for place, job in enumerate(report.jobs, start=1):
        row[f"jct_{place}_s"] = job.jct_s
        row[f"aggregated_share_{place}"] = job.aggregated_share
        row[f"fallback_{place}_bytes"] = job.fallback_bytes
        row[f"longest_iteration_{place}_s"] = max(job.iteration_s)
    return row


EXPERIMENT = Experiment(
    name="preemption",
    title="Preemption against first come first served",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
