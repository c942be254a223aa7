"""Traces of Gavel's public simulator: tab-separated, without a header.

Type, command, name of the steps' option, whether a data directory is needed, steps, arrival in seconds,
GPUs. How long a step takes is in ``simulation_throughputs.json``, which must lie beside the trace.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controller.scheduling.errors import BadTrace
from controller.scheduling.model import Submission
from controller.simulator.traces.rows import LARGEST, JobCheck, TraceRow, brief, collect, read_rows, read_text
from controller.vocabulary import Cluster

COLUMNS = ("type", "command", "option", "data", "steps", "arrival_s", "gpus")
THROUGHPUTS = "simulation_throughputs.json"


def read(
    path: Path, cluster: Cluster | None = None, known: JobCheck | None = None, *, gpu: str = "v100"
) -> list[Submission]:
    """Return the jobs of `path` alone on GPUs of kind `gpu`, named by their lines. Raises BadTrace."""
    rows = read_rows(path, COLUMNS, header=COLUMNS, delimiter="\t")
    table = _throughputs(path.with_name(THROUGHPUTS), gpu)

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

    return collect(rows, job, gpus="gpus", submit="arrival_s", model="type", cluster=cluster, known=known)


def _steps_per_s(table: dict[str, Any], kind: str, gpus: int) -> float:
    """Return the measured figure, or, if only one GPU was measured, that times `gpus`; 0: unknown."""
    return _alone(table, kind, gpus) or _alone(table, kind, 1) * gpus


def _alone(table: dict[str, Any], kind: str, gpus: int) -> float:
    entry = table.get(f"('{kind}', {gpus})")
    speed = entry.get("null") if isinstance(entry, dict) else None
    return float(speed) if isinstance(speed, int | float) and 0 < speed <= LARGEST else 0.0


def _throughputs(path: Path, gpu: str) -> dict[str, Any]:
    text = read_text(path)
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTrace(str(path), 0, "", f"not JSON: {error}") from error
    if not isinstance(table, dict) or not all(isinstance(entries, dict) for entries in table.values()):
        raise BadTrace(str(path), 0, "", "want an object of objects: steps per second by GPU and by type")
    if gpu not in table:
        raise BadTrace(str(path), 0, gpu, f"no such GPU; there are {', '.join(sorted(table))}")
    chosen: dict[str, Any] = table[gpu]
    return chosen


def speeds_by_kind(path: Path, kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return each model's measured speed on one GPU of these kinds, relative to the best of them.

    Models that were not measured on all are left out. Raises BadTrace.
    """
    tables = {kind: _throughputs(path, kind) for kind in kinds}
    found = {}
    for name in tables[kinds[0]]:
        model = name.removeprefix("('").removesuffix("', 1)")
        row = {kind: _alone(table, model, 1) for kind, table in tables.items()}
        if f"('{model}', 1)" == name and min(row.values()) > 0:
            best = max(row.values())
            found[model] = {kind: speed / best for kind, speed in row.items()}
    if not found:
        raise BadTrace(str(path), 0, "", f"no model was measured on all of {', '.join(kinds)}")
    return found
