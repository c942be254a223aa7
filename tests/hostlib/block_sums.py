"""What sums in 16, 8 or 4 bits must be, by the definition in docs/protocol.md, in whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hostlib.wire import encodings
from tests.twins import quantize


def rounded(
    values: NDArray[np.float32], exponent: int, ranks: int, numbers: encodings.Block
) -> NDArray[np.int64]:
    """Return the whole numbers that one rank's values become in a packet of that exponent."""
    bits = 32 // encodings.per_lane(numbers)
    unit = unit_of(exponent, ranks, numbers)
    most = (2 ** (bits - 1) - 1) // ranks
    return np.rint(values.astype(np.float64) / unit).clip(-most, most).astype(np.int64)


def unit_of(exponent: int, ranks: int, numbers: encodings.Block) -> float:
    """Return the value of a field's 1."""
    bits = 32 // encodings.per_lane(numbers)
    return float(np.ldexp(1.0, max(exponent, 1) - 126 + (ranks - 1).bit_length() - (bits - 1)))


def sum_of(inputs: Sequence[NDArray[np.float32]], numbers: encodings.Block) -> NDArray[np.float32]:
    """Return the sum of one packet of every rank, which all of them must get, to the bit."""
    ranks = len(inputs)
    exponent = max(int(quantize.exponents(array)) for array in inputs)
    total = sum(rounded(array, exponent, ranks, numbers) for array in inputs)
    return (total * unit_of(exponent, ranks, numbers)).astype(np.float32)
