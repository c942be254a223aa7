"""Completion times of the experiment `cluster-validation`: errors by job, ranks of policies by set."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.pages.validation_runs import JOBS, MODELS, PHASES, POLICIES, SETS
from bmv2_topos.harness import ResultRow, number, selected

SAME: Final = 0.01
"""Times that differ by less are of one rank."""


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
