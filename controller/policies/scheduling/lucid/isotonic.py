"""Monotone regression by pooling adjacent violators (Ayer et al., 1955), to constrain learned shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.policies.scheduling.lucid.usage import BadSample


def pool_adjacent_violators(
    values: Sequence[float], weights: Sequence[float] | None = None, *, increasing: bool = True
) -> list[float]:
    """Return the monotone sequence nearest to `values` in weighted squares. O(n).

    Values of weight 0 do not count; they take the value of the pool that they fall into.

    Raises BadSample if a value is not finite, a weight is negative or the lengths differ.

    >>> pool_adjacent_violators([1, 3, 2, 4])
    [1.0, 2.5, 2.5, 4.0]
    """
    weights = [1.0] * len(values) if weights is None else weights
    if len(weights) != len(values) or not all(math.isfinite(v) for v in values):
        raise BadSample(f"{len(values)} values with {len(weights)} weights; want equal numbers, all finite")
    if any(not (math.isfinite(w) and w >= 0) for w in weights):
        raise BadSample("a weight is negative or not finite")
    if not increasing:
        return [-v for v in pool_adjacent_violators([-v for v in values], weights)]
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many values
    for value, weight in zip(values, weights, strict=True):
        mean, heavy, count = float(value), float(weight), 1
        while pools and (pools[-1][0] >= mean or pools[-1][1] == 0 or heavy == 0):
            before, other, more = pools.pop()
            total = heavy + other
            mean = (before * other + mean * heavy) / total if total else before
            heavy, count = total, count + more
        pools.append((mean, heavy, count))
    return [mean for mean, _, count in pools for _ in range(count)]
