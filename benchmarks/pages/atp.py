"""ATP as published against this project's shared slots: cost or gain of each choice in which they differ.

The mixes of the experiment `preemption` under the program `atp`, under `shared`, and under builds of the two
that differ from them in one choice; and one job alone, with more and more slots and with losses.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.pages.preemption_mixes import FAVOURABLE, MIXES, communicating
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    Value,
    column,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks
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
"""Mixes that are much like others, so that the sweep stays short."""


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


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Scenario]:
    seeds = SEEDS[:1] if quick else SEEDS
    few = tuple(replace(job, iterations=max(1, job.iterations // 4)) for job in MIXES[FAVOURABLE])
    mixes = {name: jobs for name, jobs in MIXES.items() if name not in LEFT_OUT}
    if quick:
        mixes = {FAVOURABLE: few}
    for (mix, jobs), slots in itertools.product(mixes.items(), SLOTS[:1] if quick else SLOTS):
        for name, seed in itertools.product(SCHEMES, seeds):
            yield _scenario({"mix": mix, "slots": slots, "loss": 0.0, "choice": name, "seed": seed}, jobs)
    alone = (communicating("job", 2 if quick else 8),)
    for loss, slots in itertools.product(LOSSES, ALONE_SLOTS[:1] if quick else ALONE_SLOTS):
        for name, seed in itertools.product(SCHEMES, seeds):
            if name != PREEMPT:
                labels: ResultRow = {"mix": ALONE, "slots": slots, "loss": loss, "choice": name, "seed": seed}
                yield _scenario(labels, alone)


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
    """Return the columns that a run adds to its labels; those of a job are numbered in the mix's order."""
    row: dict[str, Value] = {
        "mean_jct_s": report.mean_jct_s,
        "aggregated_share": statistics.fmean(job.aggregated_share for job in report.jobs),
        "fallback_bytes": sum(job.fallback_bytes for job in report.jobs),
        "collided": sum(job.outcomes["collided"] for job in report.jobs),
        "resent_packets": sum(job.resent_packets for job in report.jobs),
    }
    return {**row, **{f"jct_{place}_s": job.jct_s for place, job in enumerate(report.jobs, start=1)}}


def times(rows: Sequence[ResultRow], choice: str, labels: ResultRow, name: str = "mean_jct_s") -> list[float]:
    """Return a completion time relative to that under ours, seed by seed."""
    ours = {row["seed"]: number(row, name) for row in selected(rows, choice=OURS, **labels)}
    return [number(row, name) / ours[row["seed"]] for row in selected(rows, choice=choice, **labels)]


def who_pays(rows: Sequence[ResultRow], choice: str, mix: str, slots: int) -> tuple[str, float]:
    """Return the job of a mix that is slowed down most against ours, and the ratio of its times."""
    means = {
        job.name: statistics.fmean(times(rows, choice, {"mix": mix, "slots": slots}, f"jct_{place}_s"))
        for place, job in enumerate(MIXES[mix], start=1)
    }
    slowest = max(means, key=lambda job: means[job])
    return slowest, means[slowest]


def settings_of(rows: Sequence[ResultRow]) -> list[tuple[str, int]]:
    """Return the mixes and slots that were run, without the job alone."""
    found = [(str(row["mix"]), int(number(row, "slots"))) for row in rows if row["mix"] != ALONE]
    return list(dict.fromkeys(found))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return times, payers, traffic and shares for the mixes, and times for the job alone."""
    took, pays, sent = [], [], []
    for mix, slots in settings_of(rows):
        of: dict[str, Value] = {"mix": mix, "slots": slots}
        ours = [1e3 * value for value in column(rows, "mean_jct_s", choice=OURS, **of)]
        took.append(
            [mix, f"{slots}", f"{spread(ours)} ms", *(spread(times(rows, name, of)) for name in OTHERS)]
        )
        payers = (who_pays(rows, name, mix, slots) for name in OTHERS)
        pays.append([mix, f"{slots}", *(f"{job}, {ratio:.2f}" for job, ratio in payers)])
        sent.append([mix, f"{slots}", *(_traffic(rows, name, of) for name in SCHEMES)])
    alone = []
    here = selected(rows, mix=ALONE)
    for loss, at in dict.fromkeys((number(row, "loss"), number(row, "slots")) for row in here):
        of = {"mix": ALONE, "slots": at, "loss": loss}
        ours = [1e3 * value for value in column(rows, "mean_jct_s", choice=OURS, **of)]
        others = [spread(times(rows, name, of)) for name in OTHERS if name != PREEMPT]
        alone.append([f"{loss:.1%}", f"{at:.0f}", f"{spread(ours)} ms", *others, _traffic(rows, ATP, of)])
    return "\n\n".join(
        [
            "### Time of each mix, relative to ours",
            markdown(["mix", "slots", f"JCT, {OURS}", *OTHERS], took),
            "### Who pays",
            markdown(["mix", "slots", *OTHERS], pays),
            "### Fallback, MB, and what is added in the switch",
            markdown(["mix", "slots", *SCHEMES], sent),
            "### One job alone",
            markdown(
                [
                    "loss",
                    "slots",
                    f"JCT, {OURS}",
                    *(name for name in OTHERS if name != PREEMPT),
                    f"{ATP}: MB, in switch",
                ],
                alone,
            ),
        ]
    )


def _traffic(rows: Sequence[ResultRow], choice: str, labels: Mapping[str, Value]) -> str:
    bytes_ = statistics.fmean(column(rows, "fallback_bytes", choice=choice, **labels))
    share = statistics.fmean(column(rows, "aggregated_share", choice=choice, **labels))
    return f"{bytes_ / 1e6:.1f}, {share:.0%}"


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw one job's time over the slots."""
    lines = {}
    used = list(dict.fromkeys(int(number(row, "slots")) for row in selected(rows, mix=ALONE)))
    for name in SCHEMES:
        if name == PREEMPT:
            continue
        for loss in LOSSES:
            lines[name if not loss else f"{name}, {loss:.1%} lost"] = [
                (
                    float(place),
                    1e3
                    * statistics.fmean(
                        column(rows, "mean_jct_s", mix=ALONE, slots=slots, choice=name, loss=loss)
                    ),
                )
                for place, slots in enumerate(used)
            ]
    path = directory / "atp.svg"
    draw_lines(
        lines,
        path,
        x="slots of the switch",
        y="JCT of one job alone (ms)",
        x_ticks=ticks(used),
        dashed=[name for name in lines if name.endswith("lost")],
    )
    return [path]


EXPERIMENT = Experiment(
    name="atp",
    title="ATP as published, and what its choices cost",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
