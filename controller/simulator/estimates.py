"""Expected durations from a file: a predictor's output for the jobs of a trace.

The file is a CSV with the columns ``name`` and ``estimate_s``, in seconds, or ``job_id`` and ``priority``, as
Lucid's predictors write it. An estimate of less than one second counts as one second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from controller.policies.family import SimulationConfig
from controller.policies.scheduling.errors import BadSpec, BadTrace
from controller.policies.scheduling.lucid.family import usage_of
from controller.policies.scheduling.policy import Submission
from controller.simulator.traces.rows import TraceRow, brief, read_rows

if TYPE_CHECKING:
    from controller.policies.scheduling.lucid.estimates import DurationModel, JobFacts


COLUMNS = ("name", "estimate_s")
OF_LUCID = ("job_id", "priority")


def read_estimates(path: Path) -> dict[str, float]:
    """Return each job's expected duration, in seconds.

    Raises BadTrace for an unreadable file, or a job that appears twice.
    """
    rows = read_rows(path, (), what="estimates")
    columns = list(rows[0].cells)
    of_lucid = {*OF_LUCID} <= {*columns} and not {*COLUMNS} & {*columns}
    name, seconds = OF_LUCID if of_lucid else COLUMNS
    if name not in columns and "job_id" in columns:
        raise BadTrace(str(path), 1, "job_id", "is no column: want name")
    if missing := [column for column in (name, seconds) if column not in columns]:
        raise BadTrace(str(path), 1, missing[0], f"missing; the columns are {', '.join(columns)}")
    found: dict[str, float] = {}
    for row in rows:
        job = row.text(name)
        if job in found:
            raise row.fail(name, f"job {job!r} appears twice")
        found[job] = max(1.0, _seconds(row, seconds))
    return found


def expect(specs: Iterable[Submission], path: Path | None) -> list[Submission]:
    """Return the jobs, with the estimates in the file `path`; None: there is no file.

    Jobs that the file does not name keep their own estimates.

    Raises BadTrace if the file is unreadable or names none of the jobs.
    """
    jobs = list(specs)
    if path is None:
        return jobs
    estimates = read_estimates(path)
    if jobs and not any(spec.name in estimates for spec in jobs):
        raise BadTrace(str(path), 0, "name", f"names none of the trace's jobs, such as {jobs[0].name!r}")
    return [replace(spec, estimate_s=estimates.get(spec.name, spec.estimate_s)) for spec in jobs]


def _seconds(row: TraceRow, column: str) -> float:
    text = row.text(column)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise row.fail(column, f"{brief(repr(text))} is not a number of seconds")
    return value


# ---------------------------------------------------------------------------
# Expected durations, learned from jobs that have ended (Lucid's workload estimate model).


def learn(ended: Sequence[Submission], config: SimulationConfig) -> DurationModel:
    """Return a model of the durations of jobs like `ended`.

    Raises BadSample for too few jobs, ExtraMissing without the packages that train it.
    """
    from controller.policies.scheduling.lucid.estimates import LONG, train_durations

    submissions = [facts_of(spec, config) for spec in ended]
    return train_durations(submissions, [spec.duration_s for spec in ended], replace(LONG, seed=config.seed))


def facts_of(spec: Submission, config: SimulationConfig) -> JobFacts:
    """Return a job's features before it runs, with its GPU usage if there are measurements of it."""
    from controller.policies.scheduling.lucid.estimates import submission as described

    try:
        return described(spec, usage_of(spec, config))
    except BadSpec:  # it has no profile
        return described(spec)


def predict(specs: Sequence[Submission], model: DurationModel, config: SimulationConfig) -> list[Submission]:
    """Return the jobs with the model's predictions as their estimates."""
    return [replace(spec, estimate_s=model.predict_s(facts_of(spec, config))) for spec in specs]
