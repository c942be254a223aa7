"""The Philly trace as Pollux and ElasticFlow ship it: ``timestamp,duration,num_gpus,gpu_time,cluster``.

Jobs are not in order of submission there; they are sorted here. `cluster` is the virtual cluster.
"""

from __future__ import annotations

from pathlib import Path

from controller.scheduling.model import Submission
from controller.simulator.traces.rows import JobCheck, TraceRow, collect, read_rows
from controller.vocabulary import Cluster

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def read(path: Path, cluster: Cluster | None = None, known: JobCheck | None = None) -> list[Submission]:
    """Return the jobs of `path`, named by line, times from the first submission on. Raises BadTrace."""
    rows = read_rows(path, COLUMNS)
    start_s = min(row.moment_s("timestamp") for row in rows)

    def job(row: TraceRow) -> Submission:
        return Submission(
            name=str(row.line),
            arrival_s=row.moment_s("timestamp") - start_s,
            gpus=row.whole("num_gpus", least=1),
            iterations=row.number("duration", positive=True),
            vc=row.text("cluster"),
        )

    return collect(
        rows, job, gpus="num_gpus", submit="timestamp", cluster=cluster, known=known, ordered=False
    )
