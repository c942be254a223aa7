"""The page of the experiment `cluster-validation`: tables and plots made of its rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bmv2_topos.experiments.cases import RESENT
from bmv2_topos.experiments.harness import ResultRow, column, markdown, number, selected
from bmv2_topos.experiments.plots import draw_lines
from bmv2_topos.experiments.validation_runs import (
    AVERAGE,
    HELD,
    JOBS,
    MODELS,
    PHASES,
    POLICIES,
    RACKS,
    SETS,
    SWITCH,
)

FAR: Final = 0.15
"""Jobs that are off by more are listed."""
SAME: Final = 0.01
"""Times that differ by less are of one rank."""
SAID: Final[Mapping[str, str]] = {SWITCH: "one switch", RACKS: "two racks", SETS: "sets under policies"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """One job of a scenario: its completion times, in seconds, and the packets that it sent."""

    case: str
    memory: str
    jobs: int
    slots: int
    job: str
    packets_s: float
    sent: float
    resent: float
    flows_s: Mapping[str, float]
    """By model."""

    @property
    def kind(self) -> str:
        """What the scenario is one of: `SWITCH`, `RACKS`, `SETS`."""
        return self.case.split()[0]

    def error(self, model: str = PHASES) -> float:
        """Return the relative error of the completion time as flows."""
        return self.flows_s[model] / self.packets_s - 1


def jobs_of(rows: Sequence[ResultRow]) -> list[JobTimes]:
    """Return all jobs of all scenarios."""
    return [
        JobTimes(
            case=str(row["case"]),
            memory=str(row["memory"]),
            jobs=int(number(row, "jobs")),
            slots=int(number(row, "slots")),
            job=name,
            packets_s=number(row, f"{name}.packets_s"),
            sent=number(row, f"{name}.sent"),
            resent=number(row, f"{name}.resent"),
            flows_s={model: number(row, f"{name}.{model}_s") for model in MODELS},
        )
        for row in selected(rows, part=JOBS)
        for name in (key.removesuffix(".packets_s") for key in row if key.endswith(".packets_s"))
    ]


def sizes(jobs: Sequence[JobTimes], model: str) -> list[float]:
    """Return the errors without their signs, the smallest first."""
    return sorted(abs(job.error(model)) for job in jobs)


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile of sorted values."""
    return values[min(len(values) - 1, math.ceil(0.95 * len(values)) - 1)]


def tables(rows: Sequence[ResultRow]) -> str:
    """Return all tables."""
    jobs = jobs_of(rows)
    far = sorted((job for job in jobs if abs(job.error()) > FAR), key=lambda job: -abs(job.error()))
    parts = {
        "Errors of completion times": _errors(jobs),
        "Packets that are sent again, for each further job on two racks": _resends(jobs),
        "Mean completion times by policy, packets / phases, ms": _ranks(jobs),
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
    """Return what jobs send again on links that they share, counted on every other scenario and the rest."""
    racks = [job for job in jobs if job.kind == RACKS and job.jobs > 1]
    cells = []
    for odd, name in enumerate(("scenarios with even numbers", "with odd ones")):
        chosen = [job for job in racks if int(job.case.split()[1]) % 2 == odd]
        others = sum(job.sent * (job.jobs - 1) for job in chosen)
        cells.append([name, f"{sum(job.resent for job in chosen) / others:.2%}" if others else "not run"])
    return markdown(["", "sent again"], [*cells, ["as flows", f"{RESENT:.1%}"]])


def means(jobs: Sequence[JobTimes], case: str) -> dict[str, list[float]]:
    """Return mean completion times of a set's jobs, in seconds, by policy: by packets and by model."""
    result: dict[str, list[float]] = {"packets": [], **{model: [] for model in MODELS}}
    for memory in POLICIES:
        here = [job for job in jobs if (job.case, job.memory) == (case, memory)]
        result["packets"].append(statistics.fmean(job.packets_s for job in here))
        for model in MODELS:
            result[model].append(statistics.fmean(job.flows_s[model] for job in here))
    return result


def correlations(jobs: Sequence[JobTimes], model: str) -> dict[str, float]:
    """Return the rank correlation of policies in packets and as flows, by set of jobs."""
    cases = dict.fromkeys(job.case for job in jobs if job.kind == SETS)
    found = {case: means(jobs, case) for case in cases}
    return {case: _spearman(by["packets"], by[model]) for case, by in found.items()}


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


def _spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the rank correlation; times that are nearly the same are of one rank."""
    a, b = (_rank(values) for values in (one, other))
    if np.std(a) == 0 or np.std(b) == 0:
        return 1.0 if np.std(a) == np.std(b) else 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _rank(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value * (1 - SAME) for other in values)
        + (sum(abs(other / value - 1) <= SAME for other in values) - 1) / 2
        for value in values
    ]


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
