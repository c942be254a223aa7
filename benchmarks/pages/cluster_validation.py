"""Validation of the flow-level simulator: completion times beside the packet testbed's.

Each scenario is run packet by packet in the virtual testbed, and as flows, in phases and on average: one to
sixteen jobs on one switch or on two racks, with a policy for switch memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.pages.cases import RESENT
from benchmarks.pages.validation_runs import (
    AVERAGE,
    HELD,
    JOBS,
    MODELS,
    PHASES,
    POLICIES,
    RACKS,
    SETS,
    SWITCH,
    JobTimes,
    correlations,
    jobs_of,
    means,
    p95,
    scenarios,
    sizes,
)
from bmv2_topos.harness import Experiment, ResultRow, column, columns, markdown, number, selected
from bmv2_topos.plots import draw_lines

FAR: Final = 0.15
"""Jobs that are off by more are listed."""
SAID: Final[Mapping[str, str]] = {SWITCH: "one switch", RACKS: "two racks", SETS: "sets under policies"}


def tables(rows: Sequence[ResultRow]) -> str:
    """Return all tables."""
    jobs = jobs_of(rows)
    far = sorted((job for job in jobs if abs(job.error()) > FAR), key=lambda job: -abs(job.error()))
    parts = {
        "Errors of completion times": _errors(jobs),
        "Packets that are sent again, for each further job on two racks": _resends(jobs),
        "Mean completion times by policy, packets / phases, ms": _ranks(jobs),
        "Missed deadlines by policy": _missed(rows),
        f"Jobs that are off by more than {FAR:.0%} in phases: {len(far)} of {len(jobs)}": _far(far),
        "An iteration of one job by slots, µs": _held(selected(rows, part=HELD)),
    }
    return "\n\n".join(f"### {title}\n\n{table}".strip() for title, table in parts.items())


def _errors(jobs: Sequence[JobTimes]) -> str:
    groups = {
        "all": jobs,
        **{SAID[kind]: [job for job in jobs if job.kind == kind] for kind in (SWITCH, RACKS)},
        **{f"policies, {p}": [job for job in jobs if job.kind == SETS and job.memory == p] for p in POLICIES},
    }
    cells = []
    for name, chosen in groups.items():
        for model in MODELS if chosen else ():
            found = sizes(chosen, model)
            cells.append(
                [
                    f"{name}, {model}",
                    str(len({(job.case, job.memory) for job in chosen})),
                    str(len(chosen)),
                    *(f"{each:.1%}" for each in (statistics.median(found), p95(found), found[-1])),
                    f"{statistics.fmean(job.error(model) for job in chosen):+.1%}",
                ]
            )
    head = ["scenarios, model", "scenarios", "jobs", "median error", "p95", "worst", "mean, signed"]
    return markdown(head, cells)


def _resends(jobs: Sequence[JobTimes]) -> str:
    """Return the retransmissions of jobs on shared links, counted on every other scenario and the rest."""
    racks = [job for job in jobs if job.kind == RACKS and job.jobs > 1]
    cells = []
    for odd, name in enumerate(("scenarios with even numbers", "with odd ones")):
        chosen = [job for job in racks if int(job.case.split()[1]) % 2 == odd]
        others = sum(job.sent * (job.jobs - 1) for job in chosen)
        cells.append([name, f"{sum(job.resent for job in chosen) / others:.2%}" if others else "not run"])
    return markdown(["", "sent again"], [*cells, ["as flows", f"{RESENT:.1%}"]])


def _ranks(jobs: Sequence[JobTimes]) -> str:
    by_model = {model: correlations(jobs, model) for model in MODELS}
    cells = []
    for case in by_model[PHASES]:
        found = means(jobs, case)
        times = zip(found["packets"], found[PHASES], strict=True)
        said = [f"{packets * 1e3:.2f} / {phases * 1e3:.2f}" for packets, phases in times]
        cells.append([case, *said, *(f"{by_model[model][case]:.2f}" for model in MODELS)])
    total = [f"{statistics.fmean(found.values()):.2f}" for found in by_model.values()]
    head = ["jobs", *POLICIES, f"rank correlation, {PHASES}", AVERAGE]
    return markdown(head, [*cells, ["mean", *[""] * len(POLICIES), *total]])


def _missed(rows: Sequence[ResultRow]) -> str:
    """Return the missed deadlines of the sets, and those of jobs that lost slots which they were granted."""
    cells = []
    for memory in POLICIES:
        here = [row for row in selected(rows, part=JOBS, memory=memory) if "due" in row]
        keys = ("due", "packets_missed", *(f"{model}_missed" for model in MODELS), "broken")
        cells.append([memory, *(f"{sum(number(row, key) for row in here):.0f}" for key in keys)])
    head = ["memory", "deadlines", "missed, packets", *(f"missed, {model}" for model in MODELS), "broken"]
    return markdown(head, cells)


def _far(jobs: Sequence[JobTimes]) -> str:
    cells = [
        [
            f"{job.case}, {job.memory}",
            job.job,
            *map(str, (job.jobs, job.slots)),
            *(f"{time_s * 1e3:.2f}" for time_s in (job.packets_s, job.flows_s[PHASES])),
            f"{job.error():+.0%}",
        ]
        for job in jobs
    ]
    head = ["scenario", "job", "jobs", "slots", "packets, ms", "phases, ms", "error"]
    return markdown(head, cells) if cells else ""


def _held(rows: Sequence[ResultRow]) -> str:
    slots = list(dict.fromkeys(row["slots"] for row in rows))
    cells = [
        [
            f"{number(of[0], 'jitter'):.0%}",
            *(f"{time_s * 1e6:.0f}" for time_s in column(of, "iteration_s")),
        ]
        for of in (selected(rows, jitter=each) for each in dict.fromkeys(row["jitter"] for row in rows))
    ]
    return markdown(["jitter", *(f"{count} slots" for count in slots)], cells)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the errors that so many jobs stay within, by kind of scenario and model."""
    jobs = jobs_of(rows)
    lines = {}
    for kind, said in SAID.items():
        for model in MODELS if any(job.kind == kind for job in jobs) else ():
            found = sizes([job for job in jobs if job.kind == kind], model)
            shares = np.arange(0, 101, 5)
            errors = 100 * np.percentile(found, shares)
            lines[f"{said}, {model}"] = [(float(x), float(y)) for x, y in zip(shares, errors, strict=True)]
    path = directory / "cluster-validation.svg"
    dashed = [name for name in lines if name.endswith(AVERAGE)]
    draw_lines(lines, path, x="jobs (%)", y="error of completion time at most (%)", dashed=dashed)
    return [path]


EXPERIMENT = Experiment(
    name="cluster-validation",
    title="The flow-level simulator beside packets",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
    plots=plots,
)
