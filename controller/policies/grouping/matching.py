"""Maximum-weight matching of many groups in pairs, fast enough for tens of thousands of groups.

Exact up to `BLOCK` nodes: the Blossom algorithm (in C, `controller._native`) considers every edge. More nodes
are cut into blocks, and each block is matched exactly. If several nodes are of one kind, each block is a
sample of all kinds. Otherwise a block has nodes with similar coordinates; the caller chooses coordinates that
are similar for good partners. docs/results/speed-trials.md says how much weight the blocks lose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from controller import _native

BLOCK = 512
"""Maximum number of nodes in a block. The Blossom algorithm takes up to 0.2 s for a block."""
SCALE = 1e8
"""Factor by which weights are multiplied before rounding: the matching in C needs integer weights."""

Pairs = list[tuple[int, int]]

Weigh = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
"""Function of two arrays of m and n nodes that returns the weights of the edges between them, shape (m, n). A
weight of 0 or less means no edge."""


def match(
    count: int,
    weigh: Weigh,
    kinds: Sequence[int] | None = None,
    places: NDArray[np.float64] | None = None,
    *,
    exact: bool = False,
) -> Pairs:
    """Return the pairs (u < v, sorted) of a matching of `count` nodes of nearly or exactly maximum weight.

    Deterministic. Runs the Blossom algorithm on n/BLOCK graphs of at most BLOCK nodes.

    Args:
        count: Number of nodes.
        weigh: Function that returns the weights between two arrays of nodes, shape (len(left), len(right));
            0: no edge.
        kinds: The kind of each node; nodes of the same kind are interchangeable. None: all differ.
        places: Coordinates of the nodes, shape (count, d): good partners should be near each other. None:
            blocks are samples of all kinds.
        exact: Whether to match on the full graph, however large.
    """
    everyone = np.arange(count)
    of_kind = everyone if kinds is None else np.asarray(kinds)
    blocks = [everyone] if exact or count <= BLOCK else _blocks(of_kind, places)
    found = [(nodes, _blossom(*_table(nodes, weigh, of_kind[nodes]))) for nodes in blocks]
    return sorted((int(nodes[u]), int(nodes[v])) for nodes, pairs in found for u, v in pairs)


def _table(
    nodes: NDArray[np.int64], weigh: Weigh, kinds: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the table of weights between kinds of nodes, and each node's row in the table."""
    listed = kinds.tolist()
    first: dict[int, int] = {}
    for at, kind in enumerate(listed):
        first.setdefault(kind, at)
    if len(first) == len(listed):
        return weigh(nodes, nodes), np.arange(len(nodes), dtype=np.int32)
    row = {kind: number for number, kind in enumerate(first)}
    examples = nodes[[*first.values()]]
    return weigh(examples, examples), np.array([row[kind] for kind in listed], dtype=np.int32)


def _blocks(kinds: NDArray[np.int64], places: NDArray[np.float64] | None) -> list[NDArray[np.int64]]:
    """Divide all nodes into blocks of at most `BLOCK` nodes.

    Blocks are samples of all kinds if `places` is None, or if each kind has, on average, at least as many
    nodes as there are blocks. Otherwise blocks consist of nodes with similar `places`.
    """
    count = -(-len(kinds) // BLOCK)
    if places is None or len(np.unique(kinds)) * count <= len(kinds):
        dealt = np.argsort(kinds, kind="stable")
        return [np.sort(dealt[number::count]) for number in range(count)]
    return _halves(np.arange(len(kinds)), places)


def _halves(nodes: NDArray[np.int64], places: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Halve `nodes` at the median of the coordinate that varies most, until no block exceeds `BLOCK`."""
    if len(nodes) <= BLOCK:
        return [np.sort(nodes)]
    here = places[nodes]
    order = nodes[np.argsort(here[:, here.var(axis=0).argmax()], kind="stable")]
    middle = len(order) // 4 * 2  # an even number of nodes can be matched completely
    return _halves(order[:middle], places) + _halves(order[middle:], places)


def _blossom(table: NDArray[np.float64], rows: NDArray[np.int32]) -> Pairs:
    """Return a matching of maximum weight.

    `rows` has each node's row in `table`, and `table` has the weight of each pair of rows; 0: no edge. Raises
    MemoryError.
    """
    whole = np.rint(table * SCALE)
    partners = np.empty(len(rows), dtype=np.int32)
    if _native.load().matching_of(
        len(rows), rows.ctypes.data, len(whole), whole.ctypes.data, partners.ctypes.data
    ):
        raise MemoryError(f"too little memory to match {len(rows)} nodes")
    return [(u, v) for u, v in enumerate(partners.tolist()) if u < v]
