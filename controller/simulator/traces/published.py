"""Traces of the published schedulers' simulators: the meaning of each one's columns.

Muri: milliseconds, three stage times per job; stage 0 is loading and preprocessing, 1 GPU, 2 network. A job
takes iterations times iteration time; `duration` is from the original trace. Tiresias: seconds. Synergy's
replay traces and Gavel's traces, which are tab-separated, have no header. The steps per second of Gavel's
jobs are in ``simulation_throughputs.json``, which must be in the trace's directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.policies.scheduling.errors import BadTrace
from controller.policies.scheduling.model import Submission
from controller.simulator.traces.rows import (
    LARGEST,
    SMALLEST,
    JobCheck,
    JobColumns,
    TraceRow,
    brief,
    collect,
    read_rows,
    read_text,
)
from controller.vocabulary import Cluster


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
        steps_per_s = _steps_per_s(table, kind, gpus)
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


def _steps_per_s(table: dict[str, Any], kind: str, gpus: int) -> float:
    """Return the measured steps per second, or else `gpus` times one GPU's steps; 0: neither is known."""
    return _measured(table, kind, gpus) or _measured(table, kind, 1) * gpus


def _measured(table: dict[str, Any], kind: str, gpus: int) -> float:
    """Return the steps per second of a job type alone on `gpus` GPUs; 0: not measured."""
    entry = table.get(f"('{kind}', {gpus})")
    speed = entry.get("null") if isinstance(entry, dict) else None
    return float(speed) if isinstance(speed, int | float) and 0 < speed <= LARGEST else 0.0
