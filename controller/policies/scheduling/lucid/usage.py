"""A job's usage as the profiler measures it, and its class by the packing analyser (Lucid, 3.2, 3.5.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from controller.policies.scheduling.lucid.errors import BadSample


class Size(IntEnum):
    """Degree to which a job disturbs another one on its GPUs. The value is its sharing score."""

    TINY = 0
    MEDIUM = 1
    JUMBO = 2


@dataclass(frozen=True, slots=True)
class Usage:
    """Averages over a profiling run, as `nvidia-smi` or DCGM give them without touching the job.

    `gpu_util` is the percentage of time in which a kernel ran, `memory_util` that in which memory was read or
    written, `memory_mb` the footprint. `mixed_precision` is what the user says of the job.
    """

    gpu_util: float
    memory_util: float
    memory_mb: float
    mixed_precision: bool = False

    def __post_init__(self) -> None:
        for name, value, most in (
            ("gpu_util", self.gpu_util, 100.0),
            ("memory_util", self.memory_util, 100.0),
            ("memory_mb", self.memory_mb, math.inf),
        ):
            if not 0 <= value <= most or not math.isfinite(value):
                limit = f"0 to {most:g}" if most < math.inf else "0 or more"
                raise BadSample(f"{name} is {value}; it can be {limit}")

    def features(self) -> tuple[float, ...]:
        """Return the numbers in the order of `FEATURES`."""
        return self.gpu_util, self.memory_util, self.memory_mb, float(self.mixed_precision)


FEATURES = ("GPU utilisation in %", "memory utilisation in %", "memory in MB", "mixed precision")


def size_of(speed: float, *, tiny: float = 0.95, medium: float = 0.85) -> Size:
    """Class a job by the mean normalised speed of the jobs that it is paired with.

    >>> size_of(0.97), size_of(0.9), size_of(0.6)
    (<Size.TINY: 0>, <Size.MEDIUM: 1>, <Size.JUMBO: 2>)
    """
    if not (math.isfinite(speed) and speed > 0 and 0 < medium <= tiny):
        raise BadSample(
            f"a speed of {speed} with thresholds {medium} and {tiny}; all have to be positive, in order"
        )
    return Size.TINY if speed >= tiny else Size.MEDIUM if speed >= medium else Size.JUMBO
