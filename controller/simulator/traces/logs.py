"""Read logs of clusters and traces of published simulators; a table has the meaning of each one's columns.

Times are seconds or dates; durations are seconds or ``[days-]hours:minutes:seconds``. Jobs that cannot be
scheduled are left out and counted by reason: no GPU, not started, not ended, or no running time. Part of a
GPU counts as one GPU.

Sources: Helios (SC'21) and Lucid; Philly as Pollux and ElasticFlow ship it, and as its own JSON log (ATC'19);
Acme (NSDI'24); Alibaba's cluster-trace-gpu-v2020 (NSDI'22), v2023 (ATC'23) and v2025 (NSDI'25); sacct(1).

Traces of the published schedulers' simulators:

Muri: milliseconds, three stage times per job; stage 0 is loading and preprocessing, 1 GPU, 2 network. A job
takes iterations times iteration time; `duration` is from the original trace. Tiresias: seconds. Synergy's
replay traces and Gavel's traces, which are tab-separated, have no header. The steps per second of Gavel's
jobs are in ``simulation_throughputs.json``, which must be in the trace's directory.
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
from controller.policies.scheduling.policy import Submission
from controller.simulator.traces.rows import (
    LARGEST,
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
from controller.vocabulary.documents import brief
from controller.vocabulary.lists import by_key

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
    groups = by_key((each.name, each) for each in ran)
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


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A format with one job per line.

    Attributes:
        columns: The required columns, or, if `headless`, all columns in their order.
        named: The columns that errors name.
        job: Function that makes a job from a row.
        headless: Whether files have no header line.
    """

    columns: tuple[str, ...]
    named: JobColumns
    job: Callable[[TraceRow], Submission]
    headless: bool = False

    def read(
        self, path: Path, cluster: Cluster | None = None, known: JobCheck | None = None
    ) -> list[Submission]:
        """Return the jobs of `path`. Raises BadTrace."""
        rows = read_rows(path, self.columns, header=self.columns if self.headless else ())
        return collect(rows, self.job, self.named, cluster, known)


SIZES = (1, 2, 4, 8, 16, 32)
RESTART_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10, 10, 10, 10, 10, 10),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
"""Time of a start on 1, 2, 4, 8, 16 and 32 GPUs, in seconds, by model, as Muri's authors measured it."""

RESTART_ELSE_S = 10.0


def restart_s(model: str, gpus: int) -> float:
    """Return the cost in seconds of starting `model` on `gpus` GPUs.

    It was measured on this number of GPUs, or on the next larger one.
    """
    if model not in RESTART_S:
        return RESTART_ELSE_S
    return float(RESTART_S[model][sum(size < gpus for size in SIZES[:-1])])


def _muri(row: TraceRow) -> Submission:
    model, gpus = row.text("model_name"), row.whole("num_gpu", least=1)
    stages = tuple(row.number(f"resource_time_{number}") / 1000 for number in range(3))
    if sum(stages) < SMALLEST:
        raise row.fail("resource_time_0", "all stage times are 0; want at least one above 0")
    return Submission(
        name=row.text("job_id"),
        arrival_s=row.number("submit_time") / 1000,
        gpus=gpus,
        iterations=row.number("iterations", positive=True),
        iteration_s=row.number("iteration_time", positive=True) / 1000,
        stages_s=stages,
        model=model,
        restart_s=restart_s(model, gpus),
        estimate_s=row.number("duration", positive=True) / 1000,
        opportunistic=row.has("priority") and row.whole("priority") > 0,
        batch=row.whole("batch_size") if row.has("batch_size") else 0,
    )


def _tiresias(row: TraceRow) -> Submission:
    iterations = row.number("iterations", positive=True)
    return Submission(
        name=row.text("job_id"),
        arrival_s=row.number("submit_time"),
        gpus=row.whole("num_gpu", least=1),
        iterations=iterations,
        iteration_s=row.number("duration", positive=True) / iterations,
        model=row.text("model_name"),
    )


ITERATION_S = {
    "alexnet": 0.60,
    "shufflenet": 0.615,
    "res18": 0.64,
    "m5": 0.60,
    "mobilenet": 0.71,
    "res50": 0.78,
    "deepspeech": 0.757,
    "transformer": 0.67,
    "gnmt": 0.12,
    "lstm": 0.011,
}
"""Seconds per iteration with a fair share of CPUs and memory, three CPUs to a GPU."""


def _synergy(row: TraceRow) -> Submission:
    model = row.text("model")
    if model not in ITERATION_S:
        raise row.fail(
            "model", f"{brief(repr(model))} is unknown; known are {', '.join(sorted(ITERATION_S))}"
        )
    return Submission(
        name=row.text("id"),
        arrival_s=row.number("arrival_s"),
        gpus=row.whole("gpus", least=1),
        iterations=row.number("iterations", positive=True),
        iteration_s=ITERATION_S[model],
        model=model,
    )


_TRACE = JobColumns(gpus="num_gpu", submit="submit_time", id="job_id", model="model_name")
TABLES = {
    "muri": PublishedTable(
        (
            *("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "iteration_time"),
            *("resource_time_0", "resource_time_1", "resource_time_2"),
        ),
        _TRACE,
        _muri,
    ),
    "tiresias": PublishedTable(
        ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"), _TRACE, _tiresias
    ),
    "synergy": PublishedTable(
        ("id", "model", "arrival_s", "iterations", "gpus"),
        JobColumns(gpus="gpus", submit="arrival_s", id="id", model="model"),
        _synergy,
        headless=True,
    ),
}
"""The tables by the names of their formats."""

GAVEL = ("type", "command", "option", "data", "steps", "arrival_s", "gpus")
"""Columns of Gavel's traces. `option` is the command's option for the number of steps; `data` says whether
the command needs a data directory."""
THROUGHPUTS = "simulation_throughputs.json"


def read_gavel(
    path: Path, cluster: Cluster | None = None, known: JobCheck | None = None, *, gpu: str = "v100"
) -> list[Submission]:
    """Return the jobs of a Gavel trace; a job's name is the number of its line.

    Args:
        path: The trace; ``simulation_throughputs.json`` must be beside it.
        cluster: Cluster on which every job must fit, else it is an error; None: no check.
        known: Function that raises for a job whose speed is unknown; None: no check.
        gpu: Kind of GPU that the jobs run on.

    Raises BadTrace.
    """
    rows = read_rows(path, GAVEL, header=GAVEL, delimiter="\t")
    beside = path.with_name(THROUGHPUTS)
    table = _throughputs(read_text(beside), gpu, str(beside))

    def job(row: TraceRow) -> Submission:
        kind, gpus = row.text("type"), row.whole("gpus", least=1)
        steps_per_s = _measured(table, kind, gpus) or _measured(table, kind, 1) * gpus
        if not steps_per_s:
            raise row.fail("type", f"{brief(repr(kind))} is not in {THROUGHPUTS}")
        return Submission(
            name=str(row.line),
            arrival_s=row.number("arrival_s"),
            gpus=gpus,
            iterations=row.number("steps", positive=True),
            iteration_s=1.0 / steps_per_s,
            model=kind,
        )

    return collect(rows, job, JobColumns(gpus="gpus", submit="arrival_s", model="type"), cluster, known)


def _throughputs(text: str, gpu: str, source: str) -> dict[str, Any]:
    """Return the entries of the file `source` for GPUs of kind `gpu`, by job type. Raises BadTrace."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTrace(source, 0, "", f"not JSON: {error}") from error
    if not isinstance(table, dict) or not all(isinstance(entries, dict) for entries in table.values()):
        raise BadTrace(source, 0, "", "want an object of objects: steps per second by GPU and by type")
    if gpu not in table:
        raise BadTrace(source, 0, gpu, f"no such GPU; there are {', '.join(sorted(table))}")
    chosen: dict[str, Any] = table[gpu]
    return chosen


def _measured(table: dict[str, Any], kind: str, gpus: int) -> float:
    """Return the steps per second of a job type alone on `gpus` GPUs; 0: not measured."""
    entry = table.get(f"('{kind}', {gpus})")
    speed = entry.get("null") if isinstance(entry, dict) else None
    return float(speed) if isinstance(speed, int | float) and 0 < speed <= LARGEST else 0.0
