"""The phases of a training iteration: computing, and the tensors that are summed, one after the other.

Tensors become ready back to front during the last `overlap` of the computing, at equal distances, and are
summed in that order. The next iteration begins when all are summed. After a tensor's last bit it takes
`latency_s` until its sum is everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.vocabulary import Job


@dataclass(frozen=True, slots=True)
class Phases:
    """One iteration: for each tensor, in the order of sending, when it is `ready_s`, and its `bits`."""

    compute_s: float
    ready_s: tuple[float, ...]
    bits: tuple[float, ...]
    latency_s: float = 0.0

    @property
    def total_bits(self) -> float:
        """Bits of all tensors."""
        return sum(self.bits)

    def iteration_s(self, rate_bps: float) -> float:
        """Return the seconds of an iteration whose tensors are all summed at this rate (bits per second).

        >>> Phases(2.0, (1.0, 2.0), (10.0, 10.0)).iteration_s(5.0)
        5.0
        """
        now_s = 0.0
        for ready_s, bits in zip(self.ready_s, self.bits, strict=True):
            now_s = max(now_s, ready_s) + bits / rate_bps + self.latency_s
        return max(now_s, self.compute_s)


def phases_of(job: Job, *, latency_s: float = 0.0, announced_bits: float = 0.0, most: int = 8) -> Phases:
    """Return the phases of a job's iteration.

    Args:
        job: The job.
        latency_s: Seconds from a tensor's last bit until its sum is everywhere.
        announced_bits: Bits sent in addition with each tensor, at most as many as the tensor has.
        most: Most tensors; layers are merged to fit.

    >>> from controller.vocabulary import Job
    >>> job = Job(name="a", workers=2, layers_bytes=(1, 2, 3), compute_s=1.0, overlap=0.5)
    >>> phases_of(job).ready_s
    (0.5, 0.75, 1.0)
    """
    layers = job.layers_bytes[::-1]
    first_s = (1 - job.overlap) * job.compute_s
    step_s = job.overlap * job.compute_s / max(1, len(layers) - 1)
    ends = _merged(layers, most)
    starts = [0, *ends[:-1]]
    sizes = [8.0 * sum(layers[start:end]) for start, end in zip(starts, ends, strict=True)]
    return Phases(
        job.compute_s + job.skew_s,
        tuple(first_s + (end - 1) * step_s + job.skew_s for end in ends),
        tuple(bits + min(bits, announced_bits) for bits in sizes),
        latency_s,
    )


def _merged(layers: Sequence[int], most: int) -> list[int]:
    """Return where each tensor ends: each has about the same part of the bytes."""
    if len(layers) <= most:
        return list(range(1, len(layers) + 1))
    whole, so_far = sum(layers), 0
    ends: list[int] = []
    for number, count in enumerate(layers, 1):
        so_far += count
        if so_far * most >= whole * (len(ends) + 1):
            ends.append(number)
    return ends
