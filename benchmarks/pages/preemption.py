"""Preemption (ESA) against first come first served: mixed jobs on one switch that has too few slots for them.

Each mix runs with all else equal: without preemption; with it, by the priorities that
`hostlib.core.priority` measures; with the same priority for all; with the priorities inverted. The favourable
mix runs with each factor of the priority alone and without each, and with other ageing. One more set of runs
has a job of the lowest priority among others of the highest. Its time without any slot bounds its
loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

from benchmarks.pages.preemption_mixes import (
    ABLATION,
    ABLATION_SLOTS,
    EQUAL,
    FAVOURABLE,
    FCFS,
    FINER_SLOTS,
    INVERTED,
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
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    Value,
    column,
    grouped,
    markdown,
    number,
    selected,
)
from bmv2_topos.testbeds.virtual import Report, VirtualSettings

Rows = Sequence[ResultRow]


def gains(rows: Rows, policy: str = PREEMPT, over: str = FCFS) -> list[float]:
    """Return the mean JCT under `over` divided by a policy's: over all common seeds, then of each."""
    times = [
        {row["seed"]: number(row, "mean_jct_s") for row in selected(rows, policy=name)}
        for name in (over, policy)
    ]
    pairs = [(times[0][seed], times[1][seed]) for seed in times[1]]
    before, after = zip(*pairs, strict=True)
    return [fmean(before) / fmean(after), *(one / other for one, other in pairs)]


def mean(rows: Rows, policy: str, name: str) -> float:
    """Return the mean of a column under a policy."""
    return fmean(column(rows, name, policy=policy))


def worst_job(rows: Rows) -> float:
    """Return the greatest ratio of a job's JCT with preemption to its JCT first come first served."""
    names = [name for name in rows[0] if name.startswith("jct_") and rows[0][name] is not None]
    return max(mean(rows, PREEMPT, name) / mean(rows, FCFS, name) for name in names)


def tables(rows: Rows) -> str:
    """Return the gain of each mix, the ablation, and the lowest priority."""
    mixes = [row for row in rows if row["mix"] != STARVATION]
    parts = {
        "Every mix": _every_mix(mixes),
        f"{FAVOURABLE}: what the gain is made of": _ablation(selected(mixes, mix=FAVOURABLE)),
        STARVATION: _starvation(selected(rows, mix=STARVATION)),
    }
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts.items())


def _gain(rows: Rows, policy: str) -> str:
    whole, *each = gains(rows, policy)
    return f"{whole:.2f} ({min(each):.2f}..{max(each):.2f})"


def _every_mix(rows: Rows) -> str:
    lines = []
    for (mix, slots), group in grouped(rows, "mix", "slots").items():
        before, after = (1e2 * mean(group, policy, "aggregated_share") for policy in (FCFS, PREEMPT))
        lines.append(
            [
                mix,
                f"{slots}",
                f"{1e3 * mean(group, FCFS, 'mean_jct_s'):.2f} ms",
                *(_gain(group, policy) for policy in (PREEMPT, EQUAL, INVERTED)),
                f"**{gains(group)[0] / gains(group, EQUAL)[0]:.2f}**",
                f"{worst_job(group):.2f}",
                f"{before:.1f} → {after:.1f} %",
            ]
        )
    heads = ["mix", "slots", "mean JCT, FCFS", "gain by policy", "all equal", "inverted", "priority"]
    return markdown([*heads, "worst job", "in the switch"], lines)


def _ablation(rows: Rows) -> str:
    by_slots = {
        slots: here
        for (slots,), here in grouped(rows, "slots").items()
        if {*ABLATION} & {row["policy"] for row in here}
    }
    names = {
        PREEMPT: "by policy",
        EQUAL: "all equal",
        INVERTED: INVERTED,
        **{name: name for name in ABLATION},
    }
    tried = {row["policy"] for here in by_slots.values() for row in here}
    lines = [
        [shown, *(_gain(here, name) for here in by_slots.values())]
        for name, shown in names.items()
        if name in tried
    ]
    return markdown(["priorities", *(f"gain, {slots} slots" for slots in by_slots)], lines)


def _starvation(rows: Rows) -> str:
    lines = []
    for (slots,), group in grouped(rows, "slots").items():
        fcfs_s, preempt_s, without_s = (mean(group, policy, "jct_1_s") for policy in (FCFS, PREEMPT, WITHOUT))
        lines.append(
            [
                f"{slots}",
                *(f"{1e3 * time_s:.2f} ms" for time_s in (fcfs_s, preempt_s, without_s)),
                *(f"{preempt_s / other_s:.2f}" for other_s in (fcfs_s, without_s)),
                f"{1e3 * mean(group, PREEMPT, 'longest_iteration_1_s'):.2f} ms",
                f"{mean(group, PREEMPT, 'aggregated_share_1'):.1%}",
            ]
        )
    heads = ["slots", "its JCT, FCFS", "preemption", "without slots", "preemption / FCFS"]
    return markdown([*heads, "preemption / without", "longest iteration", "in the switch"], lines)


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return the sweep: every mix, the ablation, and the runs about starvation."""
    starving = (FCFS, PREEMPT, WITHOUT)
    if quick:
        yield from _scenarios(FAVOURABLE, SLOTS[:1], SEEDS[:1], (*POLICIES, "ageing off"))
        yield from _scenarios(STARVATION, STARVATION_SLOTS[:1], SEEDS[:1], starving)
        return
    for mix in MIXES:
        sizes, seeds = (FINER_SLOTS, MORE_SEEDS) if mix == FAVOURABLE else (SLOTS, SEEDS)
        yield from _scenarios(mix, sizes, seeds, tuple(POLICIES))
    yield from _scenarios(FAVOURABLE, ABLATION_SLOTS, SEEDS, tuple(ABLATION))
    yield from _scenarios(STARVATION, STARVATION_SLOTS, SEEDS, starving)


def _scenarios(
    mix: str, sizes: Sequence[int], seeds: Sequence[int], policies: Sequence[str]
) -> Iterator[Scenario]:
    for slots, seed, name in product(sizes, seeds, policies):
        policy = {**POLICIES, **ABLATION, WITHOUT: POLICIES[PREEMPT]}[name]
        jobs = [replace(job, preempt=policy.preempts) for job in {**MIXES, STARVATION: LOWEST}[mix]]
        if name == WITHOUT:
            jobs[0] = replace(jobs[0], slots=0)
        yield Scenario(
            labels={"mix": mix, "slots": slots, "policy": name, "seed": seed},
            jobs=tuple(jobs),
            settings=VirtualSettings(
                slots=slots, seed=seed, samples=0, prioritize=policy.prioritize, ageing=policy.ageing
            ),
        )


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels; jobs' columns are numbered in the mix's order."""
    row: dict[str, Value] = {
        "mean_jct_s": report.mean_jct_s,
        "aggregated_share": fmean(job.aggregated_share for job in report.jobs),
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
)
