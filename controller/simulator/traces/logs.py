"""Read logs of clusters in their published formats; one table has the meaning of each log's columns.

Times are seconds or dates; durations are seconds or ``[days-]hours:minutes:seconds``. Jobs that cannot be
scheduled are left out and counted by reason: no GPU, not started, not ended, or no running time. Part of a
GPU counts as one GPU.

Sources: Helios (SC'21) and Lucid; Philly as Pollux and ElasticFlow ship it, and as its own JSON log (ATC'19);
Acme (NSDI'24); Alibaba's cluster-trace-gpu-v2020 (NSDI'22), v2023 (ATC'23) and v2025 (NSDI'25); sacct(1).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.policies.scheduling.errors import BadTrace
from controller.policies.scheduling.model import Submission
from controller.simulator.traces.rows import (
    SMALLEST,
    JobCheck,
    JobColumns,
    TraceRow,
    collect,
    delimiter_of,
    present,
    read_rows,
    read_text,
)
from controller.vocabulary import Cluster

_NOTHING = {"", "nan", "null", "none", "unknown", "n/a"}
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLog:
    """The meaning of a log's columns.

    A field may have several column names, separated by "|": the first one that the file has is used.

    `columns` identify the format, and are required. Without `name`, jobs are named by their line numbers. If
    `merges` is true, all rows with one name are one job. Without `took`, a job runs from `begin` to `end`.
    """

    columns: tuple[str, ...]
    submit: str
    gpus: str
    name: str = ""
    took: str = ""
    begin: str = ""
    end: str = ""
    user: str = ""
    vc: str = ""
    state: str = ""
    unfinished: frozenset[str] = frozenset()
    count: Callable[[TraceRow, str], float] = TraceRow.number
    """Function of a row and a column that returns the row's number of GPUs."""
    is_job: Callable[[str], bool] = lambda name: True
    """Function of a row's name; False for rows that are parts of other rows."""
    headless: bool = False
    """Whether the log has no header line. If so, `columns` are all columns of the log, in order."""
    merges: bool = False


def _per_instance(row: TraceRow, column: str) -> float:
    return row.number(column) / 100 * row.number("inst_num")


def _of_tres(row: TraceRow, column: str) -> float:
    """Return the number of GPUs in a text such as ``cpu=8,gres/gpu=2,gres/gpu:a100=2`` or ``gpu:a100:2``."""
    of_kind = Counter[bool]()
    for part in row.cells[column].split(","):
        if found := re.fullmatch(r"(?:gres/)?gpu(:[^:=]+)?[:=](\d+)(?:\(.*)?", part.strip()):
            of_kind[found[1] is None] += int(found[2])
    return of_kind[True] or of_kind[False]


LOGS = {
    "helios": ClusterLog(
        columns=("job_id", "user", "vc", "gpu_num", "submit_time", "duration"),
        name="job_id", submit="submit_time", took="duration", gpus="gpu_num", user="user", vc="vc",
    ),
    "acme": ClusterLog(
        columns=("job_id", "user", "gpu_num", "type", "submit_time", "duration"),
        name="job_id", submit="submit_time", took="duration", gpus="gpu_num", user="user",
    ),
    "philly": ClusterLog(
        columns=("timestamp", "duration", "num_gpus", "cluster"),
        submit="timestamp", took="duration", gpus="num_gpus", vc="cluster",
    ),
    "philly-log": ClusterLog(
        columns=("jobid", "submitted_time", "vc", "user", "status", "attempts"),
        name="jobid", submit="submitted_time", took="seconds", gpus="gpus", user="user", vc="vc",
    ),
    "alibaba-2020": ClusterLog(
        columns=(
            *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
            *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
        ),
        name="job_name", submit="start_time", begin="start_time", end="end_time", gpus="plan_gpu",
        count=_per_instance, state="status", unfinished=frozenset({"Running", "Waiting"}), headless=True,
        merges=True,
    ),
    "alibaba-2023": ClusterLog(
        columns=("name", "num_gpu", "gpu_milli", "creation_time", "scheduled_time", "deletion_time"),
        name="name", submit="creation_time", begin="scheduled_time", end="deletion_time", gpus="num_gpu",
    ),
    "alibaba-2025": ClusterLog(
        columns=("instance_sn", "gpu_request", "creation_time", "scheduled_time", "deletion_time"),
        name="instance_sn", submit="creation_time", begin="scheduled_time", end="deletion_time",
        gpus="gpu_request",
    ),
    "sacct": ClusterLog(
        columns=(
            *("JobID|JobIDRaw", "Submit", "State", "ElapsedRaw|Elapsed"),
            "AllocTRES|ReqTRES|AllocGRES|ReqGRES",
        ),
        name="JobID|JobIDRaw", submit="Submit", took="ElapsedRaw|Elapsed", user="User",
        vc="Partition|Account",
        gpus="AllocTRES|ReqTRES|AllocGRES|ReqGRES", count=_of_tres, state="State",
        unfinished=frozenset({"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING"}),
        is_job=lambda name: "." not in name,
    ),
}  # fmt: skip
"""The logs by the names of their formats."""


@dataclass(frozen=True, slots=True)
class _Ran:
    row: TraceRow
    name: str
    submit_s: float
    took_s: float
    gpus: float


def is_headless(cells: Sequence[str]) -> str:
    """Return the name of the format without a header line whose first line may have these cells; "": none."""
    for name, log in LOGS.items():
        if log.headless and len(cells) == len(log.columns) and cells != [*log.columns]:
            status = cells[log.columns.index(log.state)].strip()
            if status in log.unfinished | {"Terminated", "Failed"}:
                return name
    return ""


def read_log(
    format: str, path: Path, cluster: Cluster | None, known: JobCheck | None
) -> tuple[list[Submission], str]:
    """Return the jobs of a log by arrival, the first at time 0, and a text about the jobs left out.

    The text has the number of jobs left out for each reason.

    Args:
        format: The key in `LOGS`.
        path: The file.
        cluster: If given, a job larger than this is an error.
        known: Function that raises for a job whose speed is unknown; None: no check.

    Raises BadTrace.
    """
    log, left_out = LOGS[format], Counter[str]()
    rows = _attempted(path) if format == "philly-log" else _rows(log, path)
    ran = list(_ran(log, rows, left_out))
    why = ", ".join(f"{number:,} {reason}" for reason, number in left_out.items())
    if not ran:
        raise BadTrace(str(path), 0, "", f"no job is left: {why or 'no jobs in it'}")
    jobs = _merged(ran) if log.merges else ran
    start_s = min(each.submit_s for each in jobs)
    by_row = {each.row.line: each for each in jobs}
    at = rows[0].cells
    used = [log.user, log.vc, log.gpus, log.name, log.submit, log.took, log.begin, log.end]
    user, vc, gpus, name, *others = (present(column, at) for column in used)
    used_columns = {"", user, vc, gpus, name, *others}

    def job(row: TraceRow) -> Submission:
        each = by_row[row.line]
        return Submission(
            name=each.name,
            arrival_s=each.submit_s - start_s,
            gpus=_whole(each.gpus),
            iterations=each.took_s,
            model=row.cells.get("model", ""),
            estimate_s=row.number("estimate_s", positive=True) if row.has("estimate_s") else None,
            batch=row.whole("batchsize") if row.has("batchsize") else 0,
            user=row.cells.get(user, ""),
            vc=row.cells.get(vc, ""),
            extra={column: text for column, text in row.cells.items() if column not in used_columns},
        )

    named = JobColumns(gpus=gpus, submit=log.submit, id=name, model="model")
    return collect((each.row for each in jobs), job, named, cluster, known, ordered=False), why


def _rows(log: ClusterLog, path: Path) -> list[TraceRow]:
    first = next((line for line in read_text(path).split("\n") if line.strip()), "")
    header = log.columns if log.headless and not first.startswith(log.columns[0]) else ()
    return read_rows(path, log.columns, header=header, delimiter=delimiter_of(first))


def _ran(log: ClusterLog, rows: Sequence[TraceRow], left_out: Counter[str]) -> Iterator[_Ran]:
    at = rows[0].cells
    name, took, gpus, state = (present(each, at) for each in (log.name, log.took, log.gpus, log.state))
    for row in rows:
        if name and not log.is_job(row.text(name)):
            continue
        count = log.count(row, gpus) if _is_there(row, gpus) else 0.0
        if count <= 0:
            left_out["without a GPU"] += 1
            continue
        if state and row.cells[state].split(" ")[0] in log.unfinished:
            left_out["not ended"] += 1
            continue
        if not all(
            _is_there(row, each) for each in (log.submit, *([took] if took else [log.begin, log.end]))
        ):
            left_out["without a start or an end"] += 1
            continue
        took_s = _duration_s(row, took) if took else _time_s(row, log.end) - _time_s(row, log.begin)
        if took_s < SMALLEST:
            left_out["that took no time"] += 1
            continue
        yield _Ran(row, row.text(name) if name else str(row.line), _time_s(row, log.submit), took_s, count)


def _merged(ran: Sequence[_Ran]) -> list[_Ran]:
    """Merge all rows with one name to a job: with the sum of their GPUs, from first start to last end."""
    groups: dict[str, list[_Ran]] = {}
    for each in ran:
        groups.setdefault(each.name, []).append(each)
    return [
        _Ran(
            group[0].row,
            name,
            start_s := min(each.submit_s for each in group),
            max(each.submit_s + each.took_s for each in group) - start_s,
            sum(_whole(each.gpus) for each in group),
        )
        for name, group in groups.items()
    ]


def _whole(gpus: float) -> int:
    return max(1, math.ceil(gpus - 1e-9))


def _is_there(row: TraceRow, column: str) -> bool:
    return row.cells[column].lower() not in _NOTHING


def _time_s(row: TraceRow, column: str) -> float:
    try:
        float(row.cells[column])
    except ValueError:
        return row.moment_s(column)
    return row.number(column)


def _duration_s(row: TraceRow, column: str) -> float:
    if not (clock := _CLOCK.fullmatch(row.cells[column])):
        return row.number(column)
    days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _attempted(path: Path) -> list[TraceRow]:
    """Return the jobs of Philly's own log as rows.

    ``gpus`` is the number of GPUs of the last attempt, ``seconds`` the total time of all attempts.
    """
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise BadTrace(str(path), 0, "", f"not JSON: {error}") from error
    if not isinstance(found, list) or not found:
        raise BadTrace(str(path), 0, "", "no jobs in it: it must be a list of jobs")
    rows = []
    for number, entry in enumerate(found, 1):
        for column in LOGS["philly-log"].columns:
            if not isinstance(entry, dict) or column not in entry:
                raise BadTrace(str(path), 0, column, f"missing in job {number}")
        cells = {key: "" if entry[key] is None else str(entry[key]) for key in entry if key != "attempts"}
        row = TraceRow(str(path), number, cells)
        try:
            gpus, seconds = _of_attempts(row, entry["attempts"])
        except (AttributeError, KeyError, TypeError) as error:
            raise BadTrace(
                str(path),
                0,
                "attempts",
                f"job {number}: want start_time, end_time and detail of each attempt: {error!r}",
            ) from error
        cells |= {"gpus": gpus, "seconds": seconds}
        rows.append(row)
    return rows


def _of_attempts(row: TraceRow, attempts: Sequence[dict[str, Any]]) -> tuple[str, str]:
    gpus, took_s = 0, 0.0
    for each in attempts:
        gpus = sum(len(server["gpus"]) for server in each["detail"]) or gpus
        ends = TraceRow(row.path, row.line, {key: str(each.get(key)) for key in ("start_time", "end_time")})
        if all(_is_there(ends, key) for key in ends.cells):
            took_s += _time_s(ends, "end_time") - _time_s(ends, "start_time")
    is_running = bool(attempts) and attempts[-1].get("end_time") in (None, "None")
    return str(gpus), "" if is_running or not attempts else repr(took_s)
