"""Traces of Gavel's public simulator: tab-separated, without a header.

Type, command, name of the steps' option, whether a data directory is needed, steps, arrival in seconds,
GPUs. How long a step takes is in ``simulation_throughputs.json``, which must lie beside the trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controller.policies.scheduling.kinds import alone, throughputs
from controller.policies.scheduling.model import Submission
from controller.simulator.traces.rows import JobCheck, TraceRow, brief, collect, read_rows, read_text
from controller.vocabulary import Cluster

COLUMNS = ("type", "command", "option", "data", "steps", "arrival_s", "gpus")
THROUGHPUTS = "simulation_throughputs.json"


def read(
    path: Path, cluster: Cluster | None = None, known: JobCheck | None = None, *, gpu: str = "v100"
) -> list[Submission]:
    """Return the jobs of a trace, named by their lines.

    Args:
        path: The trace; ``simulation_throughputs.json`` must be beside it.
        cluster: If given, a job larger than this is an error.
        known: If given, raises for a job whose speed is unknown.
        gpu: Kind of GPU that the jobs run on.

    Raises BadTrace.
    """
    rows = read_rows(path, COLUMNS, header=COLUMNS, delimiter="\t")
    beside = path.with_name(THROUGHPUTS)
    table = throughputs(read_text(beside), gpu, source=str(beside))

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
    return alone(table, kind, gpus) or alone(table, kind, 1) * gpus
