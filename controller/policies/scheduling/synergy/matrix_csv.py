"""Read and write sensitivity matrices in CSV files: a line per model and CPU count, a column per memory size.

Columns: `cpu_gpu_ratio_dir` (which server shape was profiled; `models` stands for 3 CPUs per GPU, `models-4`
for 4 and so on), `model` (with `_<GPUs>` at its end), `batch`, `iter_time_s` (at the GPU-proportional share),
`speedup`, `ideal_cpus`, `ideal_mem_gb`, `cpu`, and `tput_mem<GB>` for each memory size.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.policies.scheduling.synergy.demand import BadMatrix, Sensitivity

NUMBERS = ("batch", "iter_time_s", "speedup", "ideal_cpus", "ideal_mem_gb", "cpu")
PREFIX = "tput_mem"


@dataclass(frozen=True, slots=True, eq=False)
class ModelProfile:
    """Profile of one model on one GPU; its time and speed-up are relative to the GPU-proportional share."""

    name: str
    sensitivity: Sensitivity
    batch: int
    iteration_s: float
    speedup: float
    ideal_cpus: float
    ideal_memory_gb: float


def read_profiles(path: Path, *, cpus_per_gpu: int = 3) -> dict[str, ModelProfile]:
    """Return the one-GPU profiles of servers with `cpus_per_gpu` CPUs per GPU, by model.

    Lines of other server shapes and of profiles on several GPUs are skipped.

    Raises BadMatrix, which names line and column, for a missing column, a missing or bad number, or an
    invalid grid; and if the file has no line for this shape.
    """
    folder = "models" if cpus_per_gpu == 3 else f"models-{cpus_per_gpu}"
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        memory = _memory_sizes(path, reader.fieldnames or ())
        rows: dict[str, list[dict[str, float]]] = {}
        for row in reader:
            model, _, gpus = (row["model"] or "").rpartition("_")
            if row["cpu_gpu_ratio_dir"] == folder and gpus == "1":
                where = f"{path}, line {reader.line_num}"
                rows.setdefault(model, []).append(
                    {c: _number(where, c, row[c]) for c in (*NUMBERS, *memory.values())}
                )
    if not rows:
        raise BadMatrix(f"{path} has no profile of {cpus_per_gpu} CPUs per GPU ('{folder}')")
    return {model: _profile(model, found, memory) for model, found in rows.items()}


def write_profile(path: Path, profile: ModelProfile, *, cpus_per_gpu: int = 3) -> None:
    """Add a model's profile to a CSV file for `read_profiles`; an existing file keeps its other models.

    Raises BadMatrix if the file has other memory sizes than the profile, or already has this model.
    """
    folder = "models" if cpus_per_gpu == 3 else f"models-{cpus_per_gpu}"
    grid = profile.sensitivity
    columns = ["cpu_gpu_ratio_dir", "model", *NUMBERS, *(f"{PREFIX}{memory:g}" for memory in grid.memory_gb)]
    lines = []
    if path.exists():
        with path.open(newline="") as file:
            lines = list(csv.reader(file))
        if lines and lines[0] != columns:
            raise BadMatrix(f"{path}, line 1: its columns are {','.join(lines[0])}; want {','.join(columns)}")
        if any(line[:2] == [folder, f"{profile.name}_1"] for line in lines):
            raise BadMatrix(f"{path} has a profile of '{profile.name}' in '{folder}' already")
    about = [profile.batch, profile.iteration_s, profile.speedup, profile.ideal_cpus, profile.ideal_memory_gb]
    for cpus, speeds in zip(grid.cpus, grid.throughput, strict=True):
        numbers = (*about, cpus, *speeds)
        lines.append([folder, f"{profile.name}_1", *(f"{number:.6g}" for number in numbers)])
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines if lines[0] == columns else [columns, *lines])


def _memory_sizes(path: Path, columns: Iterable[str]) -> dict[float, str]:
    columns = list(columns)
    missing = [c for c in ("cpu_gpu_ratio_dir", "model", *NUMBERS) if c not in columns]
    if missing:
        raise BadMatrix(f"{path}, line 1: there is no column '{missing[0]}'")
    sizes = {_number(f"{path}, line 1", c, c[len(PREFIX) :]): c for c in columns if c.startswith(PREFIX)}
    if not sizes:
        raise BadMatrix(f"{path}, line 1: there is no column '{PREFIX}<GB>'")
    return sizes


def _number(where: str, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadMatrix(f"{where}, column '{column}': {(text or '')[:60]!r} is not a number")
    return value


def _profile(model: str, rows: list[dict[str, float]], memory: Mapping[float, str]) -> ModelProfile:
    first = rows[0]
    return ModelProfile(
        name=model,
        sensitivity=Sensitivity.build(
            [r["cpu"] for r in rows],
            list(memory),
            [[r[column] for column in memory.values()] for r in rows],
            name=f"model '{model}'",
        ),
        batch=int(first["batch"]),
        iteration_s=first["iter_time_s"],
        speedup=first["speedup"],
        ideal_cpus=first["ideal_cpus"],
        ideal_memory_gb=first["ideal_mem_gb"],
    )
