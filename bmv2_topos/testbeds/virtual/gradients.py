"""Contributions of the ranks of a job, and the sums that they must be handed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hostlib.wire import quantize
from hostlib.wire.quantize import Encoding

_SHIFTS = 997  # a prime: how often the same values come round again
_LARGEST = 15.0
_ROUNDED, _TO = 1.5, 2.0
"""Where not even 1 travels exactly, the unit of a packet whose largest value is from 1 to 2 is 2."""


def largest_exact(workers: int, numbers: Encoding) -> int:
    """Return the largest whole number up to which, in fewer bits, all travel exactly; 0: none does.

    A block's unit is then at most 1: its bits less the sign's and the room for the sum hold the number.
    """
    bits = 32 // quantize.per_lane(numbers) - 1 - (workers - 1).bit_length()
    return int(min(_LARGEST, 2 ** max(bits, 0) - 1))


class Gradients:
    """Tensors of every rank, layer and iteration, and their sums.

    Values are small whole numbers, so that every sum is exact in every way of travelling and comparing is all
    that checking takes. Where none but 0 travels exactly (`largest_exact`), all are 1.5 or -1.5, which is
    rounded to 2 or -2 whichever packet it is in, and sums are of these. Each tensor of each iteration is
    another part of one array per rank: a packet of another iteration would not fit in.
    """

    def __init__(
        self,
        workers: int,
        tensors: tuple[int, ...],
        *,
        numbers: Encoding = "fixed",
        scale_bits: int,
        seed: int,
        overflow_every: int = 0,
    ) -> None:
        """Make values for so many elements per layer.

        Args:
            workers: Number of ranks.
            tensors: Elements of each layer.
            numbers: How they travel; there is room for the sum of these ranks (`quantize.most_ranks`).
            scale_bits: The job's fixed scale, which no value may leave, but for those of `overflow_every`.
            seed: Seed of the values.
            overflow_every: In every so many iterations one value of one rank leaves it; 0: never.
        """
        # at a fixed scale, ranks * largest must stay below 2**31
        largest = max(1.0, min(largest_exact(workers, numbers), (2**31 - 1) // workers / 2**scale_bits))
        generator = np.random.default_rng(seed)
        shape = (workers, max(tensors) + _SHIFTS)
        limit = int(largest)
        numbers_of_each = generator.integers(-limit, limit, shape, np.int8, endpoint=True)
        scale = received = 1.0
        if largest_exact(workers, numbers) < 1:
            numbers_of_each = 2 * generator.integers(0, 1, shape, np.int8, endpoint=True) - 1
            scale, received = _ROUNDED, _TO
        self._values: NDArray[np.float32] = np.float32(scale) * numbers_of_each
        self._sum: NDArray[np.float32] = (received * numbers_of_each.sum(axis=0)).astype(np.float32)
        self.lengths = tensors
        """Elements of each tensor, front layer first."""
        self._workers = workers
        self._overflow_every = overflow_every
        self._huge = np.float32(2.0 ** (32 - scale_bits))

    def contribution(self, rank: int, iteration: int, layer: int) -> NDArray[np.float32]:
        """Return one rank's tensor, not to be written to."""
        values = self._values[rank, self._part(iteration, layer)]
        if self._overflows(iteration) and rank == iteration % self._workers:
            values = values.copy()
            values[0] = self._huge
        return values

    def total(self, iteration: int, layer: int) -> NDArray[np.float32]:
        """Return the sum over all ranks, not to be written to."""
        part = self._part(iteration, layer)
        total = self._sum[part]
        if self._overflows(iteration):
            total = total.copy()
            total[0] += self._huge - self._values[iteration % self._workers, part.start]
        return total

    def _overflows(self, iteration: int) -> bool:
        """True if one rank has a value that the fixed scale cannot hold."""
        return self._overflow_every > 0 and iteration % self._overflow_every == self._overflow_every - 1

    def _part(self, iteration: int, layer: int) -> slice:
        start = (iteration * len(self.lengths) + layer) * 7 % _SHIFTS
        return slice(start, start + self.lengths[layer])
