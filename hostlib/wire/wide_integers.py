"""64-bit integers as columns of narrow digits, which the switch sums exactly in 32 bits each.

A number is cut into digits of so many bits that the sum of as many of them as there are ranks stays below
2**31. Sums of digits are carried into one another on the host, modulo 2**64: the sum is exact where it fits
64 bits, and wraps around as additions of 64-bit integers do elsewhere.

>>> sums = sum(split(np.array(values), 2) for values in ([2**40, -1], [5, -1]))
>>> join(sums, 2).tolist()
[1099511627781, -2]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SIZE = 1 << 20
"""Ranks; digits of more would be few bits."""


def digit_bits(size: int) -> int:
    """Return the number of bits of a digit in a sum over `size` ranks. Raises ValueError above `MAX_SIZE`."""
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"size is {size}, must be 1..{MAX_SIZE}")
    return 31 - (size - 1).bit_length()


def split(values: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Return the digits of flat `values` (n,), lowest first, as (digits, n)."""
    bits = digit_bits(size)
    raw = np.ascontiguousarray(values).view(np.uint64)
    mask = np.uint64((1 << bits) - 1)
    digits = [(raw >> np.uint64(shift)) & mask for shift in range(0, 64, bits)]
    return np.stack(digits).astype(np.int32)


def join(sums: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Return the sums (n,) of what `split` made on every rank, given the sums of the digits (digits, n)."""
    bits = digit_bits(size)
    total = np.zeros(sums.shape[1:], np.uint64)
    for digit, shift in zip(sums, range(0, 64, bits), strict=True):
        total += digit.astype(np.uint64) << np.uint64(shift)  # what leaves 64 bits is meant to
    return total.view(np.int64)
