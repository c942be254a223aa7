"""The project's own trace format: a CSV in seconds.

Required columns: ``name,arrival_s,duration_s,gpus``. Optional: ``model,user,vc,opportunistic`` (0 or 1),
``estimate_s,restart_s,deadline_s`` (after the arrival), ``iteration_s``, and the stage times of one iteration
``storage_s,cpu_s,gpu_s,network_s`` (all four or none). Without ``iteration_s`` an iteration lasts as long as
its stages together, and without stages one second. Further columns are kept as text; a column whose name is
almost one of these names is an error.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from controller.policies.scheduling.errors import BadTrace
from controller.policies.scheduling.policy import RESOURCES, Submission
from controller.simulator.traces.rows import SMALLEST, JobCheck, JobColumns, TraceRow, collect, read_rows
from controller.vocabulary import Cluster

COLUMNS = ("name", "arrival_s", "duration_s", "gpus")
OPTIONAL = ("model", "user", "vc", "opportunistic", "estimate_s", "restart_s", "deadline_s", "iteration_s")
OLD = {"job_id": "name", "submit_s": "arrival_s", "priority": "opportunistic"}
"""Present names of columns that earlier versions named differently, by the earlier name."""
STAGES = tuple(f"{resource}_s" for resource in RESOURCES)
KNOWN = {*COLUMNS, *OPTIONAL, *STAGES}


def read(path: Path, cluster: Cluster | None = None, known: JobCheck | None = None) -> list[Submission]:
    """Return the jobs of `path`. Raises BadTrace."""
    rows = read_rows(path, COLUMNS, old=OLD)
    bare = {_bare(column): column for column in OPTIONAL if column not in rows[0].cells}
    for column in rows[0].cells:
        if column not in KNOWN and (near := get_close_matches(_bare(column), bare, n=1, cutoff=0.9)):
            problem = f"unknown; did you mean {bare[near[0]]!r}? If not, give the column another name"
            raise BadTrace(str(path), 1, column, problem)
    stages = [column for column in STAGES if column in rows[0].cells]
    if stages and len(stages) != len(STAGES):
        missing = next(column for column in STAGES if column not in stages)
        raise BadTrace(str(path), 1, missing, f"missing, though {stages[0]} is there")
    named = JobColumns(gpus="gpus", submit="arrival_s", id="name", model="model")
    return collect(rows, _job, named, cluster, known)


def _bare(column: str) -> str:
    """Return a column's name in lower case, without a unit at its end."""
    return re.sub(r"[\W_]+(s|sec|seconds|ms|min|h)?[\W_]*$", "", column.lower())


def _job(row: TraceRow) -> Submission:
    stages = tuple(row.number(column) for column in STAGES) if STAGES[0] in row.cells else ()
    if stages and sum(stages) < SMALLEST:
        raise row.fail(STAGES[0], "all stage times are 0; want at least one above 0")
    iteration_s = sum(stages) if stages else 1.0
    if row.has("iteration_s"):
        iteration_s = row.number("iteration_s", positive=True)
    return Submission(
        name=row.text("name"),
        arrival_s=row.number("arrival_s"),
        gpus=row.whole("gpus", least=1),
        iterations=row.number("duration_s", positive=True) / iteration_s,
        iteration_s=iteration_s,
        stages_s=stages,
        model=row.cells.get("model", ""),
        restart_s=row.number("restart_s") if row.has("restart_s") else 0.0,
        estimate_s=row.number("estimate_s", positive=True) if row.has("estimate_s") else None,
        opportunistic=row.has("opportunistic") and row.flag("opportunistic"),
        user=row.cells.get("user", ""),
        vc=row.cells.get("vc", ""),
        deadline_s=row.number("deadline_s", positive=True) if row.has("deadline_s") else None,
        extra={column: text for column, text in row.cells.items() if column not in KNOWN},
    )


def write(path: Path, specs: Iterable[Submission]) -> None:
    """Write jobs in the neutral format; `read` returns equal jobs."""
    specs = list(specs)
    with_stages = any(len(spec.stages_s) == len(STAGES) for spec in specs)
    columns = [*COLUMNS, *OPTIONAL, *(STAGES if with_stages else ())]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for spec in specs:
            estimate = "" if spec.estimate_s is None else repr(spec.estimate_s)
            cells = [spec.name, repr(spec.arrival_s), repr(spec.duration_s), spec.gpus]
            cells += [spec.model, spec.user, spec.vc, int(spec.opportunistic), estimate, repr(spec.restart_s)]
            cells += ["" if spec.deadline_s is None else repr(spec.deadline_s)]
            cells += [repr(spec.iteration_s), *(map(repr, spec.stages_s) if with_stages else ())]
            writer.writerow(cells)
