"""Traces of Tiresias' public simulator, in seconds.

``job_id,num_gpu,submit_time,iterations,model_name,duration,interval``
"""

from __future__ import annotations

from pathlib import Path

from controller.policies.scheduling.model import Submission
from controller.simulator.traces.rows import JobCheck, TraceRow, collect, read_rows
from controller.vocabulary import Cluster

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")


def read(path: Path, cluster: Cluster | None = None, known: JobCheck | None = None) -> list[Submission]:
    """Return the jobs of `path`. Raises BadTrace."""
    rows = read_rows(path, COLUMNS)
    return collect(
        rows,
        _job,
        gpus="num_gpu",
        submit="submit_time",
        id="job_id",
        model="model_name",
        cluster=cluster,
        known=known,
    )


def _job(row: TraceRow) -> Submission:
    iterations = row.number("iterations", positive=True)
    return Submission(
        name=row.text("job_id"),
        arrival_s=row.number("submit_time"),
        gpus=row.whole("num_gpu", least=1),
        iterations=iterations,
        iteration_s=row.number("duration", positive=True) / iterations,
        model=row.text("model_name"),
    )
