"""Random draws as libc++ makes them, with which the published results were made.

The engine is the minimal standard one (Park and Miller, 1988, with the multiplier of 1993); whole numbers
are its lowest bits, those out of range drawn again; fractions come from two of its numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, TypeVar

MULTIPLIER: Final = 48271
MODULUS: Final = 2**31 - 1
RANGE: Final = MODULUS - 1
BITS: Final = 30
"""Whole bits of each number."""

T = TypeVar("T")


class Draws:
    """A sequence of draws.

    >>> draws = Draws(42)
    >>> [draws.below(10) for _ in range(5)], draws.fraction() < 1
    ([5, 6, 4, 6, 1], True)
    """

    def __init__(self, seed: int) -> None:
        self._state = seed % MODULUS or 1

    def _next(self) -> int:
        self._state = self._state * MULTIPLIER % MODULUS
        return self._state - 1

    def below(self, count: int) -> int:
        """Return a whole number from 0 to `count` - 1, at most 2**30 of them."""
        if count == 1:
            return 0
        bits = (count - 1).bit_length()
        fitting = RANGE >> bits << bits
        while True:
            drawn = self._next()
            if drawn < fitting and (value := drawn & (1 << bits) - 1) < count:
                return value

    def fraction(self) -> float:
        """Return a number from 0 to below 1."""
        low, high = float(self._next()), float(self._next())
        return (low + high * RANGE) / (float(RANGE) * RANGE)

    def weighted(self, weights: Sequence[float]) -> int:
        """Return an index, with chances proportional to weights."""
        total = sum(weights)
        return bisect_right(list(accumulate(weight / total for weight in weights[:-1])), self.fraction())

    def sample(self, of: Sequence[T], count: int) -> list[T]:
        """Return `count` of the items, or all if they are fewer, in their order."""
        chosen: list[T] = []
        left = min(count, len(of))
        for at, item in enumerate(of):
            if left and self.below(len(of) - at) < left:
                chosen.append(item)
                left -= 1
        return chosen
