"""Maximum-weight matching of many groups in pairs, fast enough for tens of thousands.

Exact up to `EXACT` nodes: every edge is given to the Blossom algorithm (in C, `controller._native`). Beyond
that the graph is thinned, and the matching improved after that, which loses under 0.5 % of the total weight
(docs/results/grouping.md has the measurement):

1. Nodes are cut into blocks of at most `BLOCK`, each a sample of the whole if kinds of nodes recur, else of
   nodes near each other (the caller says where nodes lie: good partners should be near).
2. Within a block each node keeps its heaviest edges, not too many of them to partners of one kind, for jobs
   of one model are all each other's equals and would crowd out the second choice. Blossom matches these.
3. Pairs exchange partners, along any edge of the block, as long as that gains (`two_opt`).
4. If there is more than one block, pairs are dealt into other blocks, and steps 2 and 3 are done again with
   the pairs' own edges among those that are kept, so that nothing can be lost; `PASSES` times in all.

Improve a matching by exchanging partners between two pairs, as long as that gains weight (2-opt).

Two pairs (a, b) and (c, d) can become (a, c), (b, d) or (a, d), (b, c). The gains of all such exchanges are
kept in a table. Each sweep carries out the best exchange of each pair, unless one of the two has changed in
this sweep, and recomputes only the changed rows. The weight rises with each sweep, so the search ends, at a
matching that no exchange of two pairs improves. A node without a partner is a pair with an empty seat.

O(p^2) for p pairs to begin with, O(p) for each changed pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from controller import _native

EXACT = 128
BLOCK = 1000
PASSES = 3
EDGES = 32
PER_KIND = 3
SCALE = 1e8
"""The matching takes whole weights."""

Pairs = list[tuple[int, int]]

Weigh = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
"""Weights between two sets of nodes, shape (m, n); not positive where there is no edge."""


def match(
    count: int,
    weigh: Weigh,
    kinds: Sequence[int] | None = None,
    places: NDArray[np.float64] | None = None,
    *,
    exact: bool = False,
) -> Pairs:
    """Return the pairs (u < v, sorted) of a matching of `count` nodes of nearly or exactly maximum weight.

    Deterministic. Complexity: O(n^2) for the weights, then Blossom on n/BLOCK graphs of BLOCK nodes.

    Args:
        count: Number of nodes.
        weigh: Returns the weights between two arrays of nodes, shape (len(left), len(right)); 0: no edge.
        kinds: The kind of each node; nodes of the same kind are interchangeable. None: all differ.
        places: Coordinates of the nodes, shape (count, d): good partners should be near each other.
        exact: Match on the full graph, however large.
    """
    everyone = np.arange(count)
    of_kind = everyone if kinds is None else np.asarray(kinds)
    if exact or count <= EXACT:
        return _blossom(*_table(everyone, weigh, of_kind))
    pairs: Pairs = []
    for blocks in _cuts(count, of_kind, places, pairs):
        found: Pairs = []
        for nodes in blocks:
            own = {*nodes.tolist()}
            before = [pair for pair in pairs if pair[0] in own]
            found += _in_block(nodes, before, _weighed(nodes, weigh, of_kind[nodes]), of_kind[nodes])
        pairs[:] = found
    return sorted(pairs)


def _table(
    nodes: NDArray[np.int64], weigh: Weigh, kinds: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the weights between nodes of the different `kinds`, and each node's row there."""
    listed = kinds.tolist()
    first: dict[int, int] = {}
    for at, kind in enumerate(listed):
        first.setdefault(kind, at)
    if len(first) == len(listed):
        return weigh(nodes, nodes), np.arange(len(nodes), dtype=np.int32)
    row = {kind: number for number, kind in enumerate(first)}
    examples = nodes[[*first.values()]]
    return weigh(examples, examples), np.array([row[kind] for kind in listed], dtype=np.int32)


def _weighed(nodes: NDArray[np.int64], weigh: Weigh, kinds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights between `nodes`; those between the same two `kinds` are computed once."""
    table, rows = _table(nodes, weigh, kinds)
    return table if len(table) == len(nodes) else table[np.ix_(rows, rows)]


def _cuts(
    count: int, kinds: NDArray[np.int64], places: NDArray[np.float64] | None, pairs: Pairs
) -> Iterator[list[NDArray[np.int64]]]:
    """Yield the blocks of each pass; those of later ones keep the `pairs` of that time together."""
    first = _blocks(kinds, places)
    yield first
    if len(first) == 1:
        return
    for number in range(1, PASSES):
        alone = np.setdiff1d(np.arange(count), np.array(pairs, dtype=np.int64).ravel())
        units = [*pairs, *((int(node),) for node in alone)]
        order = np.random.default_rng(number).permutation(len(units)).tolist()
        yield [
            np.array(sorted(node for unit in order[block :: len(first)] for node in units[unit]))
            for block in range(len(first))
        ]


def _in_block(
    nodes: NDArray[np.int64], before: Pairs, weights: NDArray[np.float64], kinds: NDArray[np.int64]
) -> Pairs:
    """Match `nodes`, at least as well as the pairs `before` do."""
    edges = _heaviest(weights, kinds)
    if before:
        edges = np.unique(np.concatenate([edges, np.searchsorted(nodes, before)]), axis=0)
    kept = np.zeros_like(weights)
    kept[edges[:, 0], edges[:, 1]] = weights[edges[:, 0], edges[:, 1]]
    pairs = two_opt(weights, _blossom(kept, np.arange(len(kept), dtype=np.int32)))
    return [(int(nodes[u]), int(nodes[v])) for u, v in pairs]


def _blocks(kinds: NDArray[np.int64], places: NDArray[np.float64] | None) -> list[NDArray[np.int64]]:
    """Cut all nodes into blocks: of like composition if kinds recur, else of nodes near each other."""
    count = -(-len(kinds) // BLOCK)
    if places is None or len(np.unique(kinds)) * count <= len(kinds):
        dealt = np.argsort(kinds, kind="stable")
        return [np.sort(dealt[number::count]) for number in range(count)]
    return _halves(np.arange(len(kinds)), places)


def _halves(nodes: NDArray[np.int64], places: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Halve at the median of the coordinate that varies most, until blocks are small enough."""
    if len(nodes) <= BLOCK:
        return [np.sort(nodes)]
    here = places[nodes]
    order = nodes[np.argsort(here[:, here.var(axis=0).argmax()], kind="stable")]
    middle = len(order) // 4 * 2  # an even number can be matched without rest
    return _halves(order[:middle], places) + _halves(order[middle:], places)


def _heaviest(weights: NDArray[np.float64], kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges that are among the best of either end.

    Half of a node's edges are its heaviest. The other half are the edges that exceed the partner's average
    weight most: some nodes suit all others, but only one can have them.
    """
    count = len(weights)
    distinct = len(np.unique(kinds))
    beyond = weights - weights.mean(axis=0)
    if distinct == count:
        best = [_top(values, EDGES // 2) for values in (weights, beyond)]
        partners = np.concatenate(best, axis=1)
        return _edges(weights, np.repeat(np.arange(count), partners.shape[1]), partners.ravel())
    _, first, kind_of = np.unique(kinds, return_index=True, return_inverse=True)
    members = [np.flatnonzero(kind_of == kind) for kind in range(distinct)]
    sizes = np.array([len(nodes) for nodes in members])
    most = np.minimum(sizes, max(PER_KIND, -(-EDGES // (2 * distinct))))
    rows: list[NDArray[np.int64]] = []
    columns: list[NDArray[np.int64]] = []
    for kind, nodes in enumerate(members):
        example = nodes[0]
        partner = np.where(np.arange(distinct) == kind, nodes[-1], first)  # of one's own kind, somebody else
        for values in (weights[example, partner], beyond[example, partner]):
            order = np.argsort(-values, kind="stable")
            enough = int(np.searchsorted(np.cumsum(most[order]), EDGES // 2)) + 1
            for other in order[:enough].tolist():
                # each of a kind begins with another partner, so that they do not all choose the same few
                seats = np.arange(len(nodes))[:, None] * most[other] + np.arange(most[other])
                rows.append(np.repeat(nodes, most[other]))
                columns.append(members[other][(seats % sizes[other]).ravel()])
    return _edges(weights, np.concatenate(rows), np.concatenate(columns))


def _top(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the columns of the `count` largest values of each row, in any order."""
    if count >= values.shape[1]:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.argpartition(-values, count, axis=1)[:, :count]


def _edges(
    weights: NDArray[np.float64], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the edges among these, each once."""
    there = (weights[rows, columns] > 0) & (rows != columns)
    edges = np.stack([np.minimum(rows, columns), np.maximum(rows, columns)], axis=1)[there]
    return np.unique(edges, axis=0)


def _blossom(table: NDArray[np.float64], rows: NDArray[np.int32]) -> Pairs:
    """Match nodes that weigh what `table` says of their `rows`; 0: no edge. Raises MemoryError."""
    whole = np.rint(table * SCALE)
    partners = np.empty(len(rows), dtype=np.int32)
    if _native.load().matching_of(
        len(rows), rows.ctypes.data, len(whole), whole.ctypes.data, partners.ctypes.data
    ):
        raise MemoryError(f"matching {len(rows)} nodes")
    return [(u, v) for u, v in enumerate(partners.tolist()) if u < v]


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
