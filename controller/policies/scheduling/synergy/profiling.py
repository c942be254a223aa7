"""Optimistic profiling: a whole sensitivity matrix from a few short runs (Synergy, OSDI'22, 3.1).

Throughput is measured for several numbers of CPUs, with all of the memory. The effect of less memory is
computed: a cache that never thrashes (MinIO) has an equal hit rate in every epoch, and misses are read from
storage.

`TASKS` are synthetic training tasks, to try the allocators without measured matrices.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.policies.scheduling.synergy.demand import (
    BadMatrix,
    ModelProfile,
    Sensitivity,
    Servers,
    ServerShape,
    demand,
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set, read once per epoch: `samples` samples of `sample_mb` MB each."""

    samples: int
    sample_mb: float

    def __post_init__(self) -> None:
        if self.samples <= 0 or not (math.isfinite(self.sample_mb) and self.sample_mb > 0):
            raise BadMatrix(
                f"a dataset of {self.samples} samples of {self.sample_mb} MB; both must be positive"
            )

    def hit_rate(self, memory_gb: float) -> float:
        """Return the fraction of the samples that a cache of this size holds.

        >>> Dataset(samples=1000, sample_mb=1).hit_rate(0.25)
        0.25
        """
        return min(1.0, memory_gb * 1000 / (self.samples * self.sample_mb))

    def storage_bound(self, memory_gb: float, bandwidth_mbps: float) -> float:
        """Return the samples per second at which the storage delivers all misses; infinite without misses.

        >>> Dataset(samples=1000, sample_mb=1).storage_bound(0.5, bandwidth_mbps=100)
        200.0
        """
        misses = 1 - self.hit_rate(memory_gb)
        return bandwidth_mbps / (self.sample_mb * misses) if misses > 0 else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class SensitivityProfile:
    """A sensitivity matrix, in samples per second per GPU, and the measured throughput by number of CPUs."""

    sensitivity: Sensitivity
    measured: dict[int, float]


def profile(
    measure: Callable[[int], float],
    *,
    max_cpus: int,
    memory_gb: Sequence[float],
    dataset: Dataset,
    bandwidth_mbps: float,
    threshold: float = 0.1,
) -> SensitivityProfile:
    """Build the matrix of a job from few measurements.

    Takes O(log max_cpus) measurements if the throughput is linear in the CPUs up to a knee, and constant
    beyond. For counts of CPUs that were not measured, the throughput is interpolated.

    Args:
        measure: Function of a number of CPUs that returns the samples per second of the job on one GPU, with
            all of the memory.
        max_cpus: Measurements are at 1 to `max_cpus` CPUs.
        memory_gb: The memory sizes of the matrix, in GB.
        dataset: The data that the job reads.
        bandwidth_mbps: The storage bandwidth of one GPU's share.
        threshold: Ranges of CPUs that add less than this fraction to the throughput are not searched.

    Raises BadMatrix if a measurement is not a positive number.
    """
    if max_cpus < 1 or not (math.isfinite(bandwidth_mbps) and bandwidth_mbps > 0) or not 0 < threshold < 1:
        raise BadMatrix(
            f"profiling up to {max_cpus} CPUs at {bandwidth_mbps} MB/s with threshold {threshold}:"
            " want at least one CPU, a bandwidth above 0 and a threshold between 0 and 1"
        )
    measured = measure_cpus(measure, max_cpus, threshold)
    cpus = range(1, max_cpus + 1)
    bounds = [dataset.storage_bound(m, bandwidth_mbps) for m in memory_gb]
    curve = [interpolate(measured, c) for c in cpus]
    grid = [[min(speed, bound) for bound in bounds] for speed in curve]
    return SensitivityProfile(Sensitivity.build(cpus, memory_gb, grid, name="the profile"), measured)


def measure_cpus(measure: Callable[[int], float], max_cpus: int, threshold: float) -> dict[int, float]:
    """Find by binary search where the throughput still grows; return the measurements by CPU count.

    A range of CPU counts is divided in two unless its ends differ by less than the fraction `threshold`, or
    the throughput in its middle lies on the line between its ends.
    """
    found: dict[int, float] = {}

    def at(cpus: int) -> float:
        if cpus not in found:
            found[cpus] = measure(cpus)
            if not (math.isfinite(found[cpus]) and found[cpus] > 0):
                raise BadMatrix(
                    f"the throughput measured with {cpus} CPUs is {found[cpus]}; it must be positive"
                )
        return found[cpus]

    stretches = [(1, max_cpus)]
    while stretches:
        low, high = stretches.pop()
        if high - low < 2 or at(high) <= (1 + threshold) * at(low):
            continue
        middle = (low + high) // 2
        expected = at(low) + (at(high) - at(low)) * (middle - low) / (high - low)
        if abs(at(middle) - expected) > threshold * at(middle):
            stretches += [(low, middle), (middle, high)]
    at(1)
    at(max_cpus)
    return dict(sorted(found.items()))


def interpolate(measured: dict[int, float], cpus: int) -> float:
    """Return the throughput with `cpus` CPUs, interpolated between the next lower and higher measured counts.

    >>> interpolate({1: 10.0, 3: 20.0}, 2)
    15.0
    """
    counts = list(measured)
    index = bisect_right(counts, cpus) - 1
    low = counts[index]
    if low == cpus:
        return measured[low]
    high = counts[index + 1]
    return measured[low] + (measured[high] - measured[low]) * (cpus - low) / (high - low)


@dataclass(frozen=True, slots=True)
class MadeUpTask:
    """A synthetic task. A sample takes `prepare_ms` on one CPU and `train_ms` on one GPU; both overlap."""

    kind: str
    prepare_ms: float
    train_ms: float
    dataset: Dataset

    def samples_per_s(self, cpus: int) -> float:
        """Return the throughput of one GPU with `cpus` CPUs, if storage is no limit."""
        return min(cpus * 1000 / self.prepare_ms, 1000 / self.train_ms)


IMAGES = Dataset(samples=1_200_000, sample_mb=0.11)
SOUNDS = Dataset(samples=300_000, sample_mb=0.6)
TEXTS = Dataset(samples=4_000_000, sample_mb=0.002)

TASKS: Mapping[str, MadeUpTask] = {
    "image-small": MadeUpTask("image", 6.0, 0.5, IMAGES),
    "image-medium": MadeUpTask("image", 6.0, 0.8, IMAGES),
    "image-large": MadeUpTask("image", 6.0, 1.6, IMAGES),
    "text-recurrent": MadeUpTask("text", 0.4, 3.0, TEXTS),
    "text-attention": MadeUpTask("text", 0.5, 5.0, TEXTS),
    "sound-small": MadeUpTask("sound", 15.0, 2.5, SOUNDS),
    "sound-large": MadeUpTask("sound", 15.0, 5.0, SOUNDS),
}


def profile_all(
    *, max_cpus: int = 24, fair_memory_gb: float = 62.5, bandwidth_mbps: float = 62.5
) -> dict[str, Sensitivity]:
    """Profile every task up to `max_cpus` CPUs, at multiples of a fair share of memory."""
    memory = [fair_memory_gb * part for part in (1 / 3, 1, 2, 3, 4)]
    return {
        name: profile(
            task.samples_per_s,
            max_cpus=max_cpus,
            memory_gb=memory,
            dataset=task.dataset,
            bandwidth_mbps=bandwidth_mbps,
        ).sensitivity
        for name, task in TASKS.items()
    }


def model_profiles(server: ServerShape | Servers) -> dict[str, ModelProfile]:
    """Return a profile of every task in `TASKS`, by name: its matrix, and the share for its full speed."""
    matrices = profile_all(max_cpus=int(server.most(1)[0]), fair_memory_gb=server.fair_memory_gb)
    made = {}
    for name, matrix in matrices.items():
        ideal = demand(name, 1, matrix, server).ideal
        made[name] = ModelProfile(name, matrix, 1, 1.0, ideal.speed, ideal.cpus, ideal.memory_gb)
    return made
