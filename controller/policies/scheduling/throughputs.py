"""Speeds by kind of GPU and by model, as Gavel's authors measured them: ``simulation_throughputs.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from controller.policies.scheduling.errors import BadTrace

LARGEST = 1e12
"""Steps per second beyond which a figure counts as not measured."""


def throughputs(text: str, gpu: str, *, source: str) -> dict[str, Any]:
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


def alone(table: dict[str, Any], kind: str, gpus: int) -> float:
    """Return the steps per second of a job type alone on `gpus` GPUs; 0: it was not measured."""
    entry = table.get(f"('{kind}', {gpus})")
    speed = entry.get("null") if isinstance(entry, dict) else None
    return float(speed) if isinstance(speed, int | float) and 0 < speed <= LARGEST else 0.0


def speeds_by_kind(text: str, kinds: Sequence[str], *, source: str) -> dict[str, dict[str, float]]:
    """Return each model's measured speed on one GPU of these kinds, relative to the best of them.

    Models that were not measured on all are left out. Raises BadTrace.
    """
    tables = {kind: throughputs(text, kind, source=source) for kind in kinds}
    found = {}
    for name in tables[kinds[0]]:
        model = name.removeprefix("('").removesuffix("', 1)")
        row = {kind: alone(table, model, 1) for kind, table in tables.items()}
        if f"('{model}', 1)" == name and min(row.values()) > 0:
            best = max(row.values())
            found[model] = {kind: speed / best for kind, speed in row.items()}
    if not found:
        raise BadTrace(source, 0, "", f"no model was measured on all of {', '.join(kinds)}")
    return found
