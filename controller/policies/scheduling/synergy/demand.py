"""Sensitivity matrices, their CSV files, and jobs' demands of CPUs and memory (Synergy, OSDI'22, 3.1).

A `Sensitivity` matrix has a job's throughput at each share of CPUs and memory. A `Demand` has the job's ideal
share, the fair share as fallback, and the options between these two.

Errors::

    SchedulingError
    └── SynergyError
        ├── BadMatrix      a sensitivity matrix, or the file it comes from, that cannot be used
        ├── BadDemand      a job that this cluster can never serve
        └── Infeasible     a set of jobs for which no allocation exists; the message names the scarce resource

A CSV file of matrices has a line per model and CPU count, and a column per memory size.

Columns: `cpu_gpu_ratio_dir` (which server shape was profiled; `models` stands for 3 CPUs per GPU, `models-4`
for 4 and so on), `model` (with `_<GPUs>` at its end), `batch`, `iter_time_s` (at the GPU-proportional share),
`speedup`, `ideal_cpus`, `ideal_mem_gb`, `cpu`, and `tput_mem<GB>` for each memory size.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Self

from controller.policies.scheduling.errors import BadInput, SchedulingError


class SynergyError(SchedulingError):
    """Base class of this package's errors."""


class BadMatrix(SynergyError, BadInput):
    """A sensitivity matrix that cannot be used."""


class BadDemand(SynergyError, BadInput):
    """A job that this cluster can never serve."""


class Infeasible(SynergyError):
    """No allocation exists for these jobs."""


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity:
    """Throughput of one job by CPUs and gigabytes of memory for each of its GPUs.

    `throughput[i][j]` belongs to `cpus[i]` and `memory_gb[j]`, in any unit. A job may leave resources idle,
    so more of them never slow it down: `build` raises each entry to the best entry with no more resources.
    """

    cpus: tuple[float, ...]
    memory_gb: tuple[float, ...]
    throughput: tuple[tuple[float, ...], ...]

    @classmethod
    def build(
        cls,
        cpus: Sequence[float],
        memory_gb: Sequence[float],
        throughput: Sequence[Sequence[float]],
        *,
        name: str = "the matrix",
    ) -> Sensitivity:
        """Return the matrix of a measured grid, made monotone.

        Args:
            cpus: The CPU counts per GPU, increasing.
            memory_gb: The memory sizes per GPU in GB, increasing.
            throughput: The throughput in any unit, one row per CPU count and one column per memory size.
            name: Name of the matrix in error messages.

        Raises BadMatrix, with the row and the column, if an axis is empty or does not increase, if the grid
        does not have one row per CPU count and one column per memory size, or if an entry is negative,
        infinite or not a number, or all are zero.

        >>> Sensitivity.build([1, 2], [10, 20], [[1, 2], [3, 1]]).throughput
        ((1.0, 2.0), (3.0, 3.0))
        """
        _check_axis(name, "CPUs", cpus)
        _check_axis(name, "memory", memory_gb)
        if len(throughput) != len(cpus):
            raise BadMatrix(f"{name} has {len(throughput)} rows for {len(cpus)} CPU counts")
        rows: list[tuple[float, ...]] = []
        above = (0.0,) * len(memory_gb)
        for cpu, row in zip(cpus, throughput, strict=True):
            if len(row) != len(memory_gb):
                raise BadMatrix(f"{name}, {cpu:g} CPUs: {len(row)} entries for {len(memory_gb)} memory sizes")
            best, done = 0.0, []
            for memory, value, over in zip(memory_gb, row, above, strict=True):
                if not (math.isfinite(value) and value >= 0):
                    raise BadMatrix(
                        f"{name}, {cpu:g} CPUs and {memory:g} GB: throughput {value};"
                        " want a finite number, 0 or more"
                    )
                best = max(best, over, float(value))
                done.append(best)
            above = tuple(done)
            rows.append(above)
        if rows[-1][-1] == 0:
            raise BadMatrix(f"{name} is zero everywhere: the job would never run")
        return cls(tuple(map(float, cpus)), tuple(map(float, memory_gb)), tuple(rows))

    def at(self, cpus: float, memory_gb: float) -> float:
        """Return the throughput with these shares per GPU, by the largest grid point within the shares.

        Return 0 if no grid point is within the shares, because the throughput is unknown then.

        >>> Sensitivity.build([1, 2], [10, 20], [[1, 2], [3, 4]]).at(1.9, 25)
        2.0
        """
        row = bisect_right(self.cpus, cpus + 1e-9) - 1
        column = bisect_right(self.memory_gb, memory_gb + 1e-9) - 1
        return self.throughput[row][column] if row >= 0 and column >= 0 else 0.0


def _check_axis(name: str, axis: str, values: Sequence[float]) -> None:
    if not values:
        raise BadMatrix(f"{name} has no {axis} axis")
    if not all(math.isfinite(v) and v > 0 for v in values):
        raise BadMatrix(f"{name}: the {axis} axis is {list(values)}; want positive values")
    for a, b in pairwise(values):
        if a >= b:
            raise BadMatrix(f"{name}: the {axis} axis has {b:g} after {a:g}; want increasing values")


Split = tuple[tuple[int, int], ...]
"""A job's GPUs by server: pairs of server number and number of GPUs there, each server once."""


@dataclass(frozen=True, slots=True)
class ServerShape:
    """Resources of a server, or of each of several equal servers.

    A GPU's fair share is an equal part of these resources.
    """

    gpus: int
    cpus: float
    memory_gb: float

    def __post_init__(self) -> None:
        if self.gpus < 1 or not all(math.isfinite(v) and v > 0 for v in (self.cpus, self.memory_gb)):
            raise BadDemand(
                f"a server of {self.gpus} GPUs, {self.cpus:g} CPUs and {self.memory_gb:g} GB;"
                " all must be positive"
            )

    @property
    def fair_cpus(self) -> float:
        """The CPUs that belong to one GPU."""
        return self.cpus / self.gpus

    @property
    def fair_memory_gb(self) -> float:
        """The memory that belongs to one GPU, in GB."""
        return self.memory_gb / self.gpus

    def most(self, gpus: int) -> tuple[float, float]:
        """Return the maximum CPUs and GB of memory per GPU for a job of `gpus` GPUs on the fewest servers."""
        return Servers.equal(-(-gpus // self.gpus), self).most(gpus)


@dataclass(frozen=True)
class Servers:
    """The servers of a cluster, which may differ.

    A server's fair share is its CPUs and memory divided by its GPUs. The cluster's fair share is the
    smallest one of all servers: each server can give it to each of its GPUs. A job with its fair share
    therefore runs at the same speed on any server.
    """

    shapes: tuple[ServerShape, ...]

    def __post_init__(self) -> None:
        if not self.shapes:
            raise BadDemand("a cluster of 0 servers; want at least 1")

    @classmethod
    def equal(cls, number: int, shape: ServerShape) -> Self:
        """Return `number` servers of one shape. Raises BadDemand for 0 servers."""
        return cls((shape,) * number)

    def __len__(self) -> int:
        return len(self.shapes)

    @cached_property
    def gpus(self) -> int:
        """Total number of GPUs."""
        return sum(shape.gpus for shape in self.shapes)

    @cached_property
    def cpus(self) -> float:
        """CPUs in all."""
        return sum(shape.cpus for shape in self.shapes)

    @cached_property
    def memory_gb(self) -> float:
        """GB of memory in all."""
        return sum(shape.memory_gb for shape in self.shapes)

    @cached_property
    def fair_cpus(self) -> float:
        """The CPUs that every GPU can have, on any server."""
        return min(shape.fair_cpus for shape in self.shapes)

    @cached_property
    def fair_memory_gb(self) -> float:
        """The memory that every GPU can have, on any server, in GB."""
        return min(shape.fair_memory_gb for shape in self.shapes)

    @cached_property
    def largest(self) -> ServerShape:
        """The largest amount of each resource on any server."""
        return ServerShape(
            max(shape.gpus for shape in self.shapes),
            max(shape.cpus for shape in self.shapes),
            max(shape.memory_gb for shape in self.shapes),
        )

    def most(self, gpus: int) -> tuple[float, float]:
        """Return the maximum CPUs and GB of memory per GPU for a job of `gpus` GPUs on the fewest servers.

        The servers with most GPUs are used, and filled as evenly as they allow. Raises BadDemand for more
        GPUs than the servers have.
        """
        if gpus > self.gpus:
            raise BadDemand(f"{gpus} GPUs for a job; the servers have {self.gpus}")
        by_size = sorted(self.shapes, key=lambda shape: (-shape.gpus, -shape.cpus, -shape.memory_gb))
        number = 1
        while sum(shape.gpus for shape in by_size[:number]) < gpus:
            number += 1
        chosen = by_size[:number]
        level = -(-gpus // number)
        while sum(min(shape.gpus, level) for shape in chosen) < gpus:
            level += 1
        return (
            min(shape.cpus / min(shape.gpus, level) for shape in chosen),
            min(shape.memory_gb / min(shape.gpus, level) for shape in chosen),
        )


@dataclass(frozen=True, slots=True)
class ShareOption:
    """CPUs and memory for each GPU of a job, and the job's speed with these; 1: as with the fair share."""

    cpus: float
    memory_gb: float
    speed: float


@dataclass(frozen=True, slots=True)
class Demand:
    """A job's GPUs, and the shares that are useful for the job: no smaller share gives an equal speed.

    `floor` is the fallback share: it is within the fair share, and gives the speed of the fair share. All
    `options` have at least as much of each resource as `floor`, so a change to `floor` never needs more of a
    resource. `ideal` is the smallest of the fastest options that a server allows. `tenant` and `remaining_s`
    are for the baselines. `here` has the job's present servers, on which it stays if its share fits there;
    empty: any servers.
    """

    job: Hashable
    gpus: int
    options: tuple[ShareOption, ...]
    floor: ShareOption
    ideal: ShareOption
    tenant: Hashable = ""
    remaining_s: float = 0.0
    here: Split = ()

    def speed(self, cpus: float, memory_gb: float) -> float:
        """Return the job's speed with this share per GPU.

        It is the speed of the fastest option within the share, and at least 1.
        """
        found = (o.speed for o in self.options if within(o.cpus, cpus) and within(o.memory_gb, memory_gb))
        return max(found, default=1.0)


def demand(
    job: Hashable,
    gpus: int,
    sensitivity: Sensitivity,
    server: ServerShape | Servers,
    *,
    tenant: Hashable = "",
    remaining_s: float = 0.0,
    prune: bool = True,
) -> Demand:
    """Return the demand of a job on the servers, from its sensitivity matrix.

    A job uses CPUs and memory only from the servers of its GPUs. So a job with many GPUs on a server can have
    less CPUs and memory for each GPU than a job with few GPUs. O(grid points squared).

    Args:
        job: The job's key.
        gpus: Number of the job's GPUs.
        sensitivity: The job's matrix, per GPU.
        server: The shape of equal servers, or the servers.
        tenant: The job's owner, for DRF.
        remaining_s: The job's remaining time in seconds, for Tetris.
        prune: Whether to leave out options that are no faster than another option with no more resources.
            This does not change optima; it only saves OPT time.

    Raises BadDemand if the smallest share in the matrix is above the fair share.
    """
    fair_cpus, fair_memory = server.fair_cpus, server.fair_memory_gb
    fair = sensitivity.at(fair_cpus, fair_memory)
    if fair <= 0:
        raise BadDemand(
            f"job {job} does not run with its GPU's share of {fair_cpus:g} CPUs and {fair_memory:g} GB;"
            f" its profile begins at {sensitivity.cpus[0]:g} CPUs and {sensitivity.memory_gb[0]:g} GB"
        )
    most_cpus, most_memory = server.most(gpus)
    points = [
        ShareOption(c, m, speed / fair)
        for c, row in zip(sensitivity.cpus, sensitivity.throughput, strict=True)
        for m, speed in zip(sensitivity.memory_gb, row, strict=True)
        if within(c, most_cpus) and within(m, most_memory) and speed >= fair
    ]

    def cost(option: ShareOption) -> tuple[float, float]:
        a, b = option.cpus / fair_cpus, option.memory_gb / fair_memory
        return a + b, a

    floor = min(
        (o for o in points if within(o.cpus, fair_cpus) and within(o.memory_gb, fair_memory)), key=cost
    )
    points = [o for o in points if o.cpus >= floor.cpus and o.memory_gb >= floor.memory_gb]
    fastest = max(o.speed for o in points)
    ideal = min((o for o in points if o.speed == fastest), key=cost)
    options = sorted(undominated(points) if prune else points, key=lambda o: (o.speed, cost(o)))
    return Demand(job, gpus, tuple(options), floor, ideal, tenant, remaining_s)


def within(need: float, available: float) -> bool:
    """Return whether `need` is at most `available`, with a tolerance for rounding errors of both sums."""
    return need <= available + 1e-6


def undominated(points: list[ShareOption]) -> list[ShareOption]:
    """Return the options worth considering.

    An option is left out if another option is at least as fast with no more CPUs and no more memory.
    """
    kept: list[ShareOption] = []
    for point in sorted(points, key=lambda o: (o.cpus, o.memory_gb, -o.speed)):
        if not any(k.memory_gb <= point.memory_gb and k.speed >= point.speed for k in kept):
            kept.append(point)
    return kept


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
