"""The job file: several jobs on one network, described in TOML, for ``ina run --jobs`` and ``ina sim``.

Each job is a table ``[[job]]``. Only `workers` is needed by every reader; a reader also checks the keys that
it does not use, so that one file serves both commands::

    [[job]]
    name = "vision"
    workers = 8
    command = "python examples/digits.py"   # run: what every worker executes
    preempt = true                          # may take slots from lower priorities
    window = 256                            # packets in flight per worker
    congestion = "aimd"                     # fixed, aimd or a2tp
    arrival_s = 0.5                         # from the start of the run
    iterations = 200                        # sim
    layers_bytes = [16384, 262144, 1048576] # sim: bytes of each layer's gradient, front layer first
    compute_s = 0.002                       # sim: forward and backward pass of one iteration
    straggler = { rank = 3, compute_s = 0.006 }
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.vocabulary.errors import BadSpec
from controller.vocabulary.job import Job, Straggler
from controller.vocabulary.slots import CONGESTION, ENCODINGS, MAX_WINDOW
from controller.vocabulary.values import (
    Check,
    flag,
    fraction,
    label,
    one_of,
    read_text,
    seconds,
    unknown,
    whole,
)

MAX_WORKERS = 1024
MAX_LAYER_BYTES = 1 << 32
OLD_KEYS = {"start_s": "arrival_s", "submit_s": "arrival_s", "job_id": "name"}


def _command(value: object) -> str | None:
    wanted = "want the program and its arguments, in one string or as a list of strings"
    if isinstance(value, str):
        try:
            return None if shlex.split(value) else wanted
        except ValueError as error:
            return f"{error}; {wanted}"
    good = isinstance(value, list) and value and all(isinstance(part, str) for part in value)
    return None if good else wanted


def _layers(value: object) -> str | None:
    check = whole(1, MAX_LAYER_BYTES)
    good = isinstance(value, list) and value and all(check(part) is None for part in value)
    return None if good else f"want a list of whole numbers, 1 to {MAX_LAYER_BYTES}: bytes, front layer first"


def _straggler(value: object) -> str | None:
    wanted = "want { rank = 0, compute_s = 0.01 } with a rank of the job and its seconds"
    if not isinstance(value, dict) or set(value) != {"rank", "compute_s"}:
        return wanted
    good = whole(0, MAX_WORKERS)(value["rank"]) is None and seconds(value["compute_s"]) is None
    return None if good else wanted


_CHECKS: Mapping[str, Check] = {
    "name": label,
    "workers": whole(1, MAX_WORKERS),
    "command": _command,
    "preempt": flag,
    "window": whole(1, MAX_WINDOW),
    "slots": whole(0, 1 << 32),
    "congestion": one_of(CONGESTION),
    "numbers": one_of(ENCODINGS),
    "priority": whole(0, 255),
    "arrival_s": seconds,
    "iterations": whole(1, 1 << 32),
    "layers_bytes": _layers,
    "compute_s": seconds,
    "jitter": fraction,
    "straggler": _straggler,
}


def load_jobs(path: str | Path, *, require: Collection[str] = ()) -> tuple[Job, ...]:
    """Read the jobs of a file, in its order.

    `require` are keys that the reader needs in every job, besides `workers`.

    Raises:
        BadSpec: the file cannot be read, is not TOML, or something in it is wrong or missing.
    """
    text = read_text(path, BadSpec, "job file")
    return parse_jobs(text, source=str(path), require=require)


def parse_jobs(text: str, *, source: str = "job file", require: Collection[str] = ()) -> tuple[Job, ...]:
    """Read the jobs of a text; `source` names it in errors. See `load_jobs`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSpec(f"{source}: not TOML: {error}") from error
    if others := sorted(document.keys() - {"job"}):
        raise BadSpec(f"{source}: unknown key {others[0]!r} outside of jobs; want only [[job]] tables")
    tables = document.get("job", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadSpec(f"{source}: job: want double brackets, [[job]], for each job")
    if not tables:
        raise BadSpec(f"{source}: no jobs; want at least one [[job]]")
    jobs: list[Job] = []
    for number, table in enumerate(tables, start=1):
        job = read_job(source, number, table, require)
        if any(job.name == other.name for other in jobs):
            raise BadSpec(f"{source}: job {number}: name = {job.name!r}: an earlier job has this name")
        jobs.append(job)
    return tuple(jobs)


@dataclass(frozen=True, slots=True)
class _Location:
    source: str
    job: str = field(default="")

    def error(self, what: str) -> BadSpec:
        return BadSpec(f"{self.source}: job {self.job}: {what}")


def read_job(source: str, number: int, table: Mapping[str, Any], require: Collection[str]) -> Job:
    """Return the job that a table describes, number `number` of `source`. Raises BadSpec."""
    name = table.get("name", f"job{number}")
    location = _Location(source, repr(name) if isinstance(name, str) else str(number))
    for key, value in table.items():
        if key in OLD_KEYS:
            raise location.error(f"{key} is called {OLD_KEYS[key]}")
        if key == "tensors":
            raise location.error("tensors is called layers_bytes: four bytes for each of its elements")
        if key not in _CHECKS:
            raise location.error(unknown("key", key, _CHECKS))
        if wanted := _CHECKS[key](value):
            raise location.error(f"{key} = {_toml(value)}: {wanted}")
    for key in ("workers", *require):
        if key not in table:
            raise location.error(f"{key} is missing")
    values = {"name": name, **table}
    if "command" in values:
        command = values["command"]
        values["command"] = tuple(shlex.split(command) if isinstance(command, str) else command)
    if "layers_bytes" in values:
        values["layers_bytes"] = tuple(values["layers_bytes"])
    for key in ("arrival_s", "compute_s", "jitter"):
        if key in values:
            values[key] = float(values[key])
    if "straggler" in values:
        straggler = values["straggler"]
        if straggler["rank"] >= table["workers"]:
            last = table["workers"] - 1
            raise location.error(f"straggler = {_toml(straggler)}: the job has ranks 0 to {last}")
        values["straggler"] = Straggler(straggler["rank"], float(straggler["compute_s"]))
    return Job(**values)


def _toml(value: object) -> str:
    """Return a value much as it is written in the file."""
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case str():
            return f'"{value}"'
    return str(value)
