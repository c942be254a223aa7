"""Trace files of the published schedulers and of our own, as jobs.

A file is read completely, or raises BadTrace with file, line and column. Jobs must have unique names, and
positive durations and GPU counts; logs of clusters are sorted, other files must be in order of submission.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import parent_process
from pathlib import Path

from controller.policies.scheduling.errors import BadSpec, BadTrace, SchedulingError
from controller.policies.scheduling.policy import Submission
from controller.simulator.traces import neutral
from controller.simulator.traces.logs import GAVEL, LOGS, TABLES, is_headless, read_gavel, read_log
from controller.simulator.traces.rows import (
    LARGEST,
    SMALLEST,
    JobCheck,
    delimiter_of,
    present,
    read_text,
)
from controller.vocabulary import Cluster, documents, jobs_of
from controller.vocabulary.documents import brief
from controller.vocabulary.errors import plural

_log = logging.getLogger(__name__)

Reader = Callable[[Path, Cluster | None, JobCheck | None], list[Submission]]


def read_described(
    path: Path, cluster: Cluster | None = None, known: JobCheck | None = None
) -> list[Submission]:
    """Return the jobs of a job file (`controller.vocabulary.files`) by arrival. Raises BadSpec."""
    document = documents.read(path)
    found = []
    for job, (where, table) in zip(jobs_of(document), document.tables("job"), strict=True):
        try:
            spec = Submission.of(job)
            if cluster is not None:
                cluster.check_room(spec.name, spec.gpus)
            if known is not None:
                known(spec)
        except (BadSpec, SchedulingError) as error:
            raise document.error(where, str(error)) from error
        if not SMALLEST <= spec.duration_s <= LARGEST:
            key = "iterations" if job.duration_s is None else "duration_s"
            raise document.error(
                (*where, key) if key in table else where,
                f"job {job.name!r}: {key}: it runs for {spec.duration_s:g} s; it must be at least"
                f" {SMALLEST:g} and at most {LARGEST:g}",
            )
        found.append(spec)
    return sorted(found, key=lambda spec: spec.arrival_s)


_OWN: dict[str, Reader] = {
    "csv": neutral.read,
    "toml": read_described,
    "muri": TABLES["muri"].read,
    "tiresias": TABLES["tiresias"].read,
    "gavel": read_gavel,
    "synergy": TABLES["synergy"].read,
}

FORMATS = (*_OWN, *LOGS)
"""Names of all formats."""

HEADERS: dict[str, tuple[str, ...]] = {
    "muri": TABLES["muri"].columns,
    "csv": neutral.COLUMNS,
    "tiresias": TABLES["tiresias"].columns,
    **{name: log.columns for name, log in LOGS.items() if name != "philly-log"},
}
"""The columns by which each format is detected. Of names separated by "|", a file needs only one."""

_NO_TRACES = {
    ("application", "num_replicas"): "a Pollux workload: it does not say how much work its jobs have",
    ("pod_id", "duration_hours"): "Alibaba's v2026 summary: it does not say when its jobs arrive",
    ("pod_id", "used_gpu_hours"): "Alibaba's v2026 pods by the hour: it does not say when its jobs arrive",
    ("job_name", "inst_id", "user"): "Alibaba's table of jobs: their GPUs are in pai_task_table",
    ("sn", "cpu_milli", "gpu"): "Alibaba's list of servers; its jobs are in openb_pod_list",
}
"""Published files that lack data that schedulers need: what is missing, by columns that identify the file."""


def read(
    path: Path, cluster: Cluster | None = None, known: JobCheck | None = None, *, format: str = ""
) -> list[Submission]:
    """Return the jobs of a trace file; log a warning with how many jobs were left out and why.

    Args:
        path: The file.
        cluster: Cluster on which every job must fit, else it is an error; None: no check.
        known: Function that raises for a job whose speed is unknown; None: no check.
        format: Name of the format; "": detect it by the file's name or first line.

    Raises BadTrace.
    """
    name = format or _detect(path)
    if name not in FORMATS:
        raise BadTrace(
            str(path), 0, "", f"format {brief(repr(name))} is unknown; known are {', '.join(FORMATS)}"
        )
    if name in _OWN:
        return _OWN[name](path, cluster, known)
    jobs, left_out = read_log(name, path, cluster, known)
    if left_out and parent_process() is None:  # otherwise the parent process has warned already
        _warn_once(f"{path}: read {plural(len(jobs), 'job')}; left out: {left_out}")
    return jobs


@cache
def _warn_once(text: str) -> None:
    """Log a warning only once per process, because a process reads a file again for each configuration."""
    _log.warning("%s", text)


def _detect(path: Path) -> str:
    if path.suffix in documents.FORMATS and path.suffix != ".json":
        return "toml"
    text = read_text(path)
    if path.suffix == ".json" or text.lstrip().startswith("["):
        return "philly-log" if text.lstrip().startswith("[") else "toml"
    line, first = next(
        ((at, each) for at, each in enumerate(text.split("\n"), 1) if each.strip(" ,")), (1, "")
    )
    if first.count("\t") == len(GAVEL) - 1:
        return "gavel"
    try:
        columns = [cell.strip() for cell in next(csv.reader([first], delimiter=delimiter_of(first)), [])]
    except csv.Error as error:
        raise BadTrace(str(path), line, "", str(error)) from error
    if not columns:
        raise BadTrace(str(path), 1, "", "empty; want a first line with the columns, or --format")
    if len(columns) == len(TABLES["synergy"].columns) and columns[0].isdigit():
        return "synergy"
    if headless := is_headless(columns):
        return headless
    return _by_columns(path, line, columns, first)


def _by_columns(path: Path, line: int, columns: Sequence[str], first: str) -> str:
    """Return the format of which the file has most columns.

    Raises BadTrace if the file lacks columns of this format.
    """

    def missing(name: str) -> list[str]:
        old = neutral.OLD if name == "csv" else {}
        current = {old.get(column, column) for column in columns}
        return [column for column in HEADERS[name] if not present(column, current)]

    # a Muri trace that lacks one of Muri's columns is no Tiresias trace, though it has all of its columns
    nearest = max(HEADERS, key=lambda name: (len(HEADERS[name]) - len(missing(name)), -len(missing(name))))
    lacking = missing(nearest)
    if lacking:
        for some, why in _NO_TRACES.items():
            if {*some} <= {*columns}:
                raise BadTrace(str(path), line, "", why)
        for other in ";\t|":
            if len(first.split(other)) > len(columns):
                raise BadTrace(str(path), line, "", f"cells are separated by {other!r}; it must be ','")
    if 4 * len(lacking) > len(HEADERS[nearest]):
        known = "; ".join(f"{name}: {','.join(header)}" for name, header in HEADERS.items())
        raise BadTrace(
            str(path),
            line,
            "",
            f"unknown columns {brief(', '.join(columns))}; the known formats have the columns: {known}",
        )
    if lacking and nearest != "csv":  # the reader of csv knows columns' earlier names, too
        raise BadTrace(str(path), line, lacking[0], f"missing; the format seems to be {nearest!r}")
    return nearest
