"""Cluster logs of Helios (SC'21) and Lucid: one line per job, dates as text, durations in seconds.

Needed: ``job_id,user,vc,gpu_num,submit_time,duration``; all further columns are kept as text (Lucid's
profile columns among them). Jobs without a GPU are left out.
"""

from __future__ import annotations

from pathlib import Path

from controller.scheduling.errors import BadTrace
from controller.scheduling.model import Submission
from controller.simulator.traces.rows import JobCheck, TraceRow, collect, read_rows
from controller.vocabulary import Cluster

COLUMNS = ("job_id", "user", "vc", "gpu_num", "submit_time", "duration")


def read(path: Path, cluster: Cluster | None = None, known: JobCheck | None = None) -> list[Submission]:
    """Return the GPU jobs of `path`, times from the first submission on. Raises BadTrace."""
    rows = [row for row in read_rows(path, COLUMNS) if row.whole("gpu_num")]
    if not rows:
        raise BadTrace(str(path), 0, "gpu_num", "no job has a GPU")
    start_s = rows[0].moment_s("submit_time")

    def job(row: TraceRow) -> Submission:
        submit_s = row.moment_s("submit_time") - start_s
        if submit_s < 0:
            raise row.fail("submit_time", "before the first line's")
        return Submission(
            name=row.text("job_id"),
            arrival_s=submit_s,
            gpus=row.whole("gpu_num", least=1),
            iterations=row.number("duration", positive=True),
            model=row.cells.get("model", ""),
            estimate_s=row.number("estimate_s", positive=True) if row.has("estimate_s") else None,
            batch=row.whole("batchsize") if row.has("batchsize") else 0,
            user=row.text("user"),
            vc=row.text("vc"),
            extra={column: text for column, text in row.cells.items() if column not in COLUMNS},
        )

    return collect(
        rows,
        job,
        gpus="gpu_num",
        submit="submit_time",
        id="job_id",
        model="model",
        cluster=cluster,
        known=known,
    )
