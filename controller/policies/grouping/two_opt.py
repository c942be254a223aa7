"""Improve a matching by exchanging partners between two pairs, as long as that gains weight (2-opt).

Two pairs (a, b) and (c, d) can become (a, c), (b, d) or (a, d), (b, c). The gains of all such exchanges are
kept in a table. Each sweep carries out the best exchange of each pair, unless one of the two has changed in
this sweep, and recomputes only the changed rows. The weight rises with each sweep, so the search ends, at a
matching that no exchange of two pairs improves. A node without a partner is a pair with an empty seat.

O(p^2) for p pairs to begin with, O(p) for each changed pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

GAIN = 1e-9
"""Gains up to this are rounding."""


def two_opt(weights: NDArray[np.float64], pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return `pairs` (u < v, sorted), improved. `weights` is symmetric; weights of 0 or less are not edges.

    >>> two_opt(np.array([[0, 1, 9, 0], [1, 0, 0, 9], [9, 0, 0, 1], [0, 9, 1, 0]]), [(0, 1), (2, 3)])
    [(0, 2), (1, 3)]
    """
    count = len(weights)
    table = np.zeros((count + 1, count + 1))  # the last node is nobody
    np.maximum(weights, 0.0, out=table[:count, :count])
    np.fill_diagonal(table, 0.0)
    alone = np.setdiff1d(np.arange(count), np.array(pairs, dtype=np.int64).ravel())
    left = np.array([*(u for u, _ in pairs), *alone], dtype=np.int64)
    right = np.array([*(v for _, v in pairs), *[count] * len(alone)], dtype=np.int64)
    if len(left) > 1:
        _sweep(table, left, right)
    ends = zip(left.tolist(), right.tolist(), strict=True)
    return sorted((min(u, v), max(u, v)) for u, v in ends if table[u, v] > 0)


def _sweep(table: NDArray[np.float64], left: NDArray[np.int64], right: NDArray[np.int64]) -> None:
    everyone = np.arange(len(left))
    gains = _gains(table, left, right, everyone)
    while True:
        partner = gains.argmax(axis=1)
        best = gains[everyone, partner]
        changed: dict[int, None] = {}
        for i in np.argsort(-best, kind="stable")[: np.count_nonzero(best > GAIN)].tolist():
            j = int(partner[i])
            if i not in changed and j not in changed:
                a, b, c, d = left[i], right[i], left[j], right[j]
                if table[a, c] + table[b, d] >= table[a, d] + table[b, c]:
                    right[i], left[j] = c, b
                else:
                    right[i], right[j] = d, b
                changed[i] = changed[j] = None
        if not changed:
            return
        rows = np.array([*changed])
        gains[rows] = _gains(table, left, right, rows)
        gains[:, rows] = gains[rows].T


def _gains(
    table: NDArray[np.float64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the gain of the better exchange of each pair of `rows` with each other pair: a matrix."""
    now = table[left, right]
    a, b = left[rows], right[rows]
    across = table[np.ix_(a, left)] + table[np.ix_(b, right)]
    np.maximum(across, table[np.ix_(a, right)] + table[np.ix_(b, left)], out=across)
    across -= now[rows][:, None]
    across -= now[None, :]
    across[np.arange(len(rows)), rows] = 0.0
    return across
