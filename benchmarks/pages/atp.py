"""ATP as published against this project's shared slots: cost or gain of each choice in which they differ.

Runs the mixes of the experiment `preemption` with the programs `atp` and `shared`, and with builds of the two
that differ in one choice; and one job alone, with more and more slots and with losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Final

from benchmarks.pages.preemption_mixes import FAVOURABLE, MIXES, by_job, communicating, completion
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    column,
    grouped,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link

SEEDS: Final = (1, 2, 3, 4, 5)
SLOTS: Final = (128, 512)
ALONE: Final = "1 job"
ALONE_SLOTS: Final = (64, 256)
LOSSES: Final = (0.0, 1e-3)
LEFT_OUT: Final = (
    "computing + 2 communicating",
    "straggler among equals",
    "2 straggling + 2 communicating",
    "3 equal, computing",
    "short, middle, long",
)
"""Mixes that are left out, as they resemble others: the sweep stays short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotScheme:
    """A way to find, hold and free slots: a program, its build and the options of the jobs."""

    program: str = "shared"
    defines: tuple[tuple[str, str], ...] = ()
    rehashes: bool = True
    preempt: bool = False


OURS, ATP, FIXED_SALT, HELD, HASHED, PREEMPT = (
    "ours", "ATP", "ATP, no rehash", "ours, held", "ours, hashed", "ours, preemption"
)  # fmt: skip
SCHEMES: Final[Mapping[str, SlotScheme]] = {
    OURS: SlotScheme(),
    ATP: SlotScheme(program="atp"),
    FIXED_SALT: SlotScheme(program="atp", rehashes=False),
    HELD: SlotScheme(defines=(("HELD_SLOTS", ""),)),
    HASHED: SlotScheme(defines=(("ADDRESSING", "HASHED"),)),
    PREEMPT: SlotScheme(preempt=True),
}
OTHERS: Final = tuple(name for name in SCHEMES if name != OURS)


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return the sweep."""
    few = tuple(replace(job, iterations=max(1, job.iterations // 4)) for job in MIXES[FAVOURABLE])
    mixes = {FAVOURABLE: few} if quick else {name: mix for name, mix in MIXES.items() if name not in LEFT_OUT}
    seeds, slots, alone = (SEEDS[:1], SLOTS[:1], ALONE_SLOTS[:1]) if quick else (SEEDS, SLOTS, ALONE_SLOTS)
    for (mix, jobs), size, name, seed in product(mixes.items(), slots, SCHEMES, seeds):
        yield _scenario({"mix": mix, "slots": size, "loss": 0.0, "choice": name, "seed": seed}, jobs)
    for loss, size, name, seed in product(LOSSES, alone, SCHEMES, seeds):
        if name != PREEMPT:
            labels: ResultRow = {"mix": ALONE, "slots": size, "loss": loss, "choice": name, "seed": seed}
            yield _scenario(labels, (communicating("job", 2 if quick else 8),))


def _scenario(labels: ResultRow, jobs: Sequence[Job]) -> Scenario:
    scheme = SCHEMES[str(labels["choice"])]
    return Scenario(
        labels=labels,
        jobs=tuple(replace(job, preempt=scheme.preempt) for job in jobs),
        settings=VirtualSettings(
            program=scheme.program,
            defines=scheme.defines,
            rehashes=scheme.rehashes,
            slots=int(number(labels, "slots")),
            seed=int(number(labels, "seed")),
            samples=0,
        ),
        link=Link("a", "b", loss=number(labels, "loss")),
    )


def measure(report: Report) -> ResultRow:
    """Return completion times, and counts of packets added, collided and sent again."""
    return completion(
        report,
        aggregated_share=fmean(job.aggregated_share for job in report.jobs),
        fallback_bytes=sum(job.fallback_bytes for job in report.jobs),
        collided=sum(job.outcomes["collided"] for job in report.jobs),
        resent_packets=sum(job.resent_packets for job in report.jobs),
    )


def times(rows: Sequence[ResultRow], choice: str, name: str = "mean_jct_s") -> list[float]:
    """Return completion times relative to ours in the rows of one setting, seed by seed."""
    ours = {row["seed"]: number(row, name) for row in selected(rows, choice=OURS)}
    return [number(row, name) / ours[row["seed"]] for row in selected(rows, choice=choice)]


def tables(rows: Sequence[ResultRow]) -> str:
    """Return times, payers, traffic and shares for the mixes, and times for the job alone."""
    took, pays, sent, alone = [], [], [], []
    for (mix, slots, loss), group in grouped(rows, "mix", "slots", "loss").items():
        choices = [name for name in OTHERS if mix != ALONE or name != PREEMPT]
        ours = spread([1e3 * value for value in column(group, "mean_jct_s", choice=OURS)])
        relative = [f"{ours} ms", *(spread(times(group, name)) for name in choices)]
        if mix == ALONE:
            alone.append([f"{loss:.1%}", f"{slots}", *relative, _traffic(group, ATP)])
            continue
        payers = [by_job(mix, partial(_mean_time, group, name)) for name in choices]
        took.append([mix, f"{slots}", *relative])
        pays.append([mix, f"{slots}", *(f"{job}, {ratio:.2f}" for job, ratio in payers)])
        sent.append([mix, f"{slots}", *(_traffic(group, name) for name in SCHEMES)])
    without = [name for name in OTHERS if name != PREEMPT]
    parts = {
        "Time of each mix, relative to ours": markdown(["mix", "slots", f"JCT, {OURS}", *OTHERS], took),
        "Who pays": markdown(["mix", "slots", *OTHERS], pays),
        "Fallback, MB, and what is added in the switch": markdown(["mix", "slots", *SCHEMES], sent),
        "One job alone": markdown(
            ["loss", "slots", f"JCT, {OURS}", *without, f"{ATP}: MB, in switch"], alone
        ),
    }
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts.items())


def _mean_time(rows: Sequence[ResultRow], choice: str, name: str) -> float:
    return fmean(times(rows, choice, name))


def _traffic(rows: Sequence[ResultRow], choice: str) -> str:
    bytes_, share = (
        fmean(column(rows, name, choice=choice)) for name in ("fallback_bytes", "aggregated_share")
    )
    return f"{bytes_ / 1e6:.1f}, {share:.0%}"


EXPERIMENT = Experiment(
    name="atp",
    title="ATP as published, and what its choices cost",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
