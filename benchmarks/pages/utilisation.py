"""What ESA's priorities, factor by factor, make of a switch's memory: speed, slots held, sums per slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.pages.preemption_mixes import ABLATION, FAVOURABLE, FCFS, MIXES, POLICIES, PREEMPT, Policy
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    Value,
    column,
    markdown,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import Report, VirtualSettings

NAMES: Final = (
    *POLICIES,
    *("position alone", "share alone", "remaining time alone"),
    *("without position", "without share", "without remaining time"),
)
SLOTS = (64, 256)
SEEDS = (1, 2, 3, 4, 5)


def policies() -> Mapping[str, Policy]:
    """Return all policies of the page."""
    return {name: {**POLICIES, **ABLATION}[name] for name in NAMES}


def scenarios(quick: bool) -> list[Scenario]:
    """Return the mix under every policy."""
    names = (FCFS, PREEMPT) if quick else NAMES
    return [
        Scenario(
            labels={"slots": slots, "policy": name, "seed": seed},
            jobs=tuple(replace(job, preempt=policy.preempts) for job in MIXES[FAVOURABLE]),
            settings=VirtualSettings(
                slots=slots, seed=seed, prioritize=policy.prioritize, ageing=policy.ageing
            ),
        )
        for slots in (SLOTS[:1] if quick else SLOTS)
        for name, policy in policies().items()
        if name in (names if slots == SLOTS[0] else (FCFS, PREEMPT))
        for seed in (SEEDS[:1] if quick else SEEDS)
    ]


def measure(report: Report) -> ResultRow:
    """Return the mean completion time, and how the slots were used."""
    held = fmean(sum(sample.slots.values()) for sample in report.occupancy) / report.slots
    sums = sum(job.outcomes.get("completed", 0) for job in report.jobs)
    row: dict[str, Value] = {"mean_jct_s": report.mean_jct_s, "held": held}
    return row | {
        "sums_per_slot_ms": sums / report.slots / (report.duration_s * 1e3),
        "evictions": sum(job.evictions for job in report.jobs),
    }


def gain(rows: Sequence[ResultRow], slots: Value, policy: Value) -> list[float]:
    """Return the gain of a policy over first come first served, seed by seed."""
    pairs = (column(rows, "mean_jct_s", slots=slots, policy=of) for of in (FCFS, policy))
    return [before / after for before, after in zip(*pairs, strict=True)]


def _of(rows: Sequence[ResultRow], column_: str) -> list[Value]:
    return list(dict.fromkeys(row[column_] for row in rows))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per number of slots."""
    parts = []
    for slots in _of(rows, "slots"):
        lines = [
            [
                str(policy),
                spread(gain(rows, slots, policy)),
                spread(column(rows, "held", slots=slots, policy=policy), ".0%"),
                spread(column(rows, "sums_per_slot_ms", slots=slots, policy=policy)),
                spread(column(rows, "evictions", slots=slots, policy=policy), ".0f"),
            ]
            for policy in _of(selected(rows, slots=slots), "policy")
        ]
        table = markdown(["policy", "gain", "held", "sums per slot and ms", "evictions"], lines)
        parts.append(f"### {slots} slots\n\n{table}")
    return "\n\n".join(parts)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw gains and sums per slot by policy."""
    names = _of(rows, "policy")
    lines = {
        f"{slots} slots": [
            (float(at), fmean(gain(rows, slots, name)))
            for at, name in enumerate(names)
            if selected(rows, slots=slots, policy=name)
        ]
        for slots in _of(rows, "slots")
    }
    path = directory / "utilisation.svg"
    labels = ticks(str(name).replace(" ", "\n") for name in names)
    draw_lines(lines, path, x="policy", y="gain over first come first served", x_ticks=labels)
    return [path]


EXPERIMENT = Experiment(
    name="utilisation",
    title="ESA by factor: what priorities make of switch memory",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
