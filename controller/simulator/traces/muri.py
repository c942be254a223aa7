"""Traces of Muri's public simulator: milliseconds, three stage times per job.

``job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,
resource_time_1,resource_time_2,priority``. Stage 0 is loading and preprocessing, 1 GPU, 2 network.
A job takes iterations times iteration time; `duration` is that of the original trace.
"""

from __future__ import annotations

from pathlib import Path

from controller.policies.scheduling.model import Submission
from controller.simulator.traces.rows import SMALLEST, JobCheck, TraceRow, collect, read_rows
from controller.vocabulary import Cluster

COLUMNS = (
    "job_id",
    "num_gpu",
    "submit_time",
    "iterations",
    "model_name",
    "duration",
    "iteration_time",
    "resource_time_0",
    "resource_time_1",
    "resource_time_2",
)

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
"""Seconds that the authors measured for a start, by model, on 1, 2, 4, 8, 16 and 32 GPUs."""

RESTART_ELSE_S = 10.0


def restart_s(model: str, gpus: int) -> float:
    """Return the cost in seconds of starting `model` on `gpus` GPUs: that of the next measured size."""
    if model not in RESTART_S:
        return RESTART_ELSE_S
    return float(RESTART_S[model][sum(size < gpus for size in SIZES[:-1])])


def read(path: Path, cluster: Cluster | None = None, known: JobCheck | None = None) -> list[Submission]:
    """Return the jobs of `path`. Raises BadTrace."""
    rows = read_rows(path, COLUMNS)
    return collect(
        rows,
        _job,
        gpus="num_gpu",
        submit="submit_time",
        id="job_id",
        model="model_name",
        cluster=cluster,
        known=known,
    )


def _job(row: TraceRow) -> Submission:
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
