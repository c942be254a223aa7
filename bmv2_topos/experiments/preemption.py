"""Preemption (ESA) against first come first served: mixed jobs on one switch that has too few slots for them.

Each mix runs twice with all else equal: once no job may preempt, once all may, with the priorities that
`hostlib.priority` measures. One more set of runs has a job of the lowest priority among others of the
highest: how long it takes, and how long it would take without any slot, which bounds what it can lose.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from bmv2_topos.experiments.harness import Experiment, Row, Scenario, Value, main
from bmv2_topos.experiments.preemption_mixes import (
    FAVOURABLE,
    FCFS,
    FINER_SLOTS,
    LOWEST,
    MIXES,
    PREEMPT,
    SEEDS,
    SLOTS,
    STARVATION,
    STARVATION_SLOTS,
    WITHOUT,
)
from bmv2_topos.experiments.preemption_page import ABOUT, LIMITS, QUESTION, findings, plots, tables
from bmv2_topos.jobfile import JobEntry
from bmv2_topos.testbeds.virtual import Report, VirtualSettings


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep: every mix under both policies, and the runs about starvation."""
    found = []
    mixes = {FAVOURABLE: MIXES[FAVOURABLE]} if quick else MIXES
    seeds = SEEDS[:1] if quick else SEEDS
    for mix, jobs in mixes.items():
        for slots in SLOTS[:1] if quick else FINER_SLOTS if mix == FAVOURABLE else SLOTS:
            for seed in seeds:
                found += [_scenario(mix, jobs, policy, slots, seed) for policy in (FCFS, PREEMPT)]
    for slots in STARVATION_SLOTS[:1] if quick else STARVATION_SLOTS:
        for seed in seeds:
            of = [_scenario(STARVATION, LOWEST, policy, slots, seed) for policy in (FCFS, PREEMPT, WITHOUT)]
            found += of
    return found


def _scenario(mix: str, jobs: Sequence[JobEntry], policy: str, slots: int, seed: int) -> Scenario:
    of = [replace(job, preempt=policy != FCFS) for job in jobs]
    if policy == WITHOUT:
        of[0] = replace(of[0], slots=0)
    return Scenario(
        labels={"mix": mix, "slots": slots, "policy": policy, "seed": seed},
        jobs=tuple(of),
        settings=VirtualSettings(slots=slots, seed=seed, samples=0),
    )


def measure(report: Report) -> Row:
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
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
