"""Data of plots: distributions, and curves over time as means of equal intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def cdf(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the empirical distribution: each value, ascending, with the fraction that is not above it.

    >>> cdf([3.0, 1.0])
    [(1.0, 0.5), (3.0, 1.0)]
    """
    return [(value, (number + 1) / len(values)) for number, value in enumerate(sorted(values))]


def means(
    times_s: Sequence[float], values: Sequence[float], end_s: float, bins: int = 200
) -> list[tuple[float, float]]:
    """Return the mean of a step curve in each of `bins` equal intervals.

    O(samples + bins).

    Args:
        times_s: Ascending times at which the value changes.
        values: The value from each of these times to the next.
        end_s: End of the last interval; the first begins at ``times_s[0]``.
        bins: Number of intervals.

    Returns:
        For each interval its middle and the mean. Empty if there is no sample, or none before `end_s`.

    >>> means([0.0, 1.0], [0.0, 4.0], 4.0, bins=2)
    [(1.0, 2.0), (3.0, 4.0)]
    """
    if not times_s or end_s <= times_s[0]:
        return []
    begin_s = times_s[0]
    width_s = (end_s - begin_s) / bins
    sums = [0.0] * bins
    for (start_s, stop_s), value in zip(pairwise([*times_s, end_s]), values, strict=True):
        first = min(int((start_s - begin_s) / width_s), bins - 1)
        last = min(int((stop_s - begin_s) / width_s), bins - 1)
        for number in range(first, last + 1):
            left_s = begin_s + number * width_s
            overlap_s = min(stop_s, left_s + width_s) - max(start_s, left_s)
            sums[number] += value * max(0.0, overlap_s)
    return [(begin_s + (number + 0.5) * width_s, total / width_s) for number, total in enumerate(sums)]
