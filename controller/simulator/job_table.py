"""The result of each job, as CSV or JSON: one line or object for each job of each simulation."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from controller.simulator.record import Ended

COLUMNS = (
    "name",
    "arrival_s",
    "start_s",
    "finish_s",
    "jct_s",
    "waited_s",
    "alone_s",
    "slowdown",
    "gpus",
    "starts",
    "preemptions",
)

Row = Sequence[str | float]


def row_of(job: Ended) -> Row:
    """Return a job's row, with the columns `COLUMNS`."""
    return (
        job.spec.name,
        job.spec.arrival_s,
        job.start_s,
        job.finish_s,
        job.jct_s,
        job.waited_s,
        job.alone_s,
        job.slowdown,
        job.spec.gpus,
        job.starts,
        job.preemptions,
    )


def write_jobs(path: Path, runs: Iterable[tuple[Mapping[str, str | float], Iterable[Row]]]) -> None:
    """Write the rows of all runs, each preceded by the columns that identify its run.

    To a name that ends in .json a list of objects is written instead.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".json":
            found = ({**run, **dict(zip(COLUMNS, row, strict=True))} for run, rows in runs for row in rows)
            file.write("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
            return
        writer = csv.writer(file, lineterminator="\n")
        header: Sequence[str] = ()
        for run, rows in runs:
            if not header:
                header = (*run, *COLUMNS)
                writer.writerow(header)
            writer.writerows((*run.values(), *row) for row in rows)
