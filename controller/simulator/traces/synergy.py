"""Replay traces of Synergy's public simulator: ``id,model,arrival_s,iterations,gpus``, without a header."""

from __future__ import annotations

from pathlib import Path

from controller.policies.scheduling.model import Submission
from controller.simulator.traces.rows import JobCheck, TraceRow, brief, collect, read_rows
from controller.vocabulary import Cluster

COLUMNS = ("id", "model", "arrival_s", "iterations", "gpus")

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


def read(path: Path, cluster: Cluster | None = None, known: JobCheck | None = None) -> list[Submission]:
    """Return the jobs of `path`. Raises BadTrace."""
    rows = read_rows(path, COLUMNS, header=COLUMNS)
    return collect(
        rows, _job, gpus="gpus", submit="arrival_s", id="id", model="model", cluster=cluster, known=known
    )


def _job(row: TraceRow) -> Submission:
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
