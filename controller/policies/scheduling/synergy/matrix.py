"""Sensitivity matrix: a job's throughput at each share of CPUs and memory (Synergy, OSDI'22, 3.1)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from controller.policies.scheduling.synergy.errors import BadMatrix


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity:
    """Throughput of one job by CPUs and gigabytes of memory for each of its GPUs.

    `throughput[i][j]` belongs to `cpus[i]` and `memory_gb[j]`, in any unit. A job may leave resources idle,
    so more of them never slows it: `build` raises measured entries to the best at no more resources.
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
        """Return the throughput with these shares for each GPU: that of the largest grid point within them.

        Below the grid it is 0, because it is unknown there.

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
