"""Maximum-weight matching of many groups in pairs, fast enough for tens of thousands.

Exact up to `EXACT` nodes: every edge is given to the Blossom algorithm (rustworkx). Beyond that the graph is
thinned, which loses well under 0.5 % of the total weight (docs/results/schedulers-grouping.md has the
measurement): nodes are cut into blocks of at most `BLOCK`, each a sample of the whole if kinds of nodes
recur, else of nodes near each other (the caller says where nodes lie: good partners should be near), and
within a block each node keeps its heaviest edges, not too many of them to partners of one kind, for jobs of
one model are all each other's equals and would crowd out the second choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import rustworkx
from numpy.typing import NDArray

EXACT = 128
BLOCK = 1000
EDGES = 32
PER_KIND = 3
SCALE = 1e8
"""rustworkx takes whole weights."""

Weigh = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
"""Weights between two sets of nodes, shape (m, n); not positive where there is no edge."""

Pairs = list[tuple[int, int]]


def match(
    count: int,
    weigh: Weigh,
    kinds: Sequence[int] | None = None,
    places: NDArray[np.float64] | None = None,
    *,
    exact: bool = False,
) -> Pairs:
    """Return the pairs (u < v, sorted) of a matching of `count` nodes of nearly or exactly maximum weight.

    `kinds` numbers nodes that are each other's equals alike. `places` has shape (count, d): where nodes lie.
    `exact` keeps all edges whatever the size.
    Deterministic. Complexity: O(n^2) for the weights, then Blossom on n/BLOCK graphs of BLOCK nodes.
    """
    everyone = np.arange(count)
    if exact or count <= EXACT:
        weights = weigh(everyone, everyone)
        upper = np.argwhere(np.triu(weights > 0, 1))
        return _blossom(count, upper, weights[upper[:, 0], upper[:, 1]])
    of_kind = np.arange(count) if kinds is None else np.asarray(kinds)
    pairs: Pairs = []
    for nodes in _blocks(of_kind, places):
        edges, weights = _heaviest(weigh(nodes, nodes), of_kind[nodes])
        pairs += [(int(nodes[u]), int(nodes[v])) for u, v in _blossom(len(nodes), edges, weights)]
    # what the thinning has left without a partner gets another chance among itself
    left = np.setdiff1d(everyone, np.array(pairs, dtype=np.int64).ravel())
    if pairs and len(left) > 1:
        again = match(
            len(left),
            lambda a, b: weigh(left[a], left[b]),
            [int(of_kind[node]) for node in left],
            None if places is None else places[left],
        )
        pairs += [(int(left[u]), int(left[v])) for u, v in again]
    return sorted(pairs)


def greedy(count: int, weigh: Weigh) -> Pairs:
    """Return a matching by taking the heaviest edge again and again: at least half of the maximum weight."""
    everyone = np.arange(count)
    weights = weigh(everyone, everyone)
    upper = np.argwhere(np.triu(weights > 0, 1))
    order = np.argsort(-weights[upper[:, 0], upper[:, 1]], kind="stable")
    taken: set[int] = set()
    pairs: Pairs = []
    for u, v in upper[order].tolist():
        if u not in taken and v not in taken:
            taken |= {u, v}
            pairs.append((u, v))
    return sorted(pairs)


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


def _heaviest(
    weights: NDArray[np.float64], kinds: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the edges that are among the best of either end, and their weights.

    Half of a node's edges are its heaviest. The other half are those that are heaviest beyond what the
    partner weighs on average: some nodes suit everybody, but only one can have them.
    """
    count = len(weights)
    # equals in another order for each node, so that not all of a kind choose the same few partners
    shuffle = np.random.default_rng(count).permutation(count)
    distinct = len(np.unique(kinds))
    crowded = distinct < count
    most = max(PER_KIND, -(-EDGES // (2 * distinct)))
    beyond = weights - weights.mean(axis=0)
    chosen: list[NDArray[np.int64]] = []
    for u in range(count):
        order = np.roll(shuffle, u)
        for values in (weights[u], beyond[u]):
            candidates = order[np.argsort(-values[order], kind="stable")]
            if crowded:
                candidates = candidates[_rank_within(kinds[candidates]) < most]
            candidates = candidates[: EDGES // 2]
            candidates = candidates[(weights[u, candidates] > 0) & (candidates != u)]
            chosen.append(np.stack([np.minimum(u, candidates), np.maximum(u, candidates)], axis=1))
    edges = np.unique(np.concatenate(chosen), axis=0)
    return edges, weights[edges[:, 0], edges[:, 1]]


def _rank_within(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each element how many equal ones stand before it."""
    order = np.argsort(kinds, kind="stable")
    ordered = kinds[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(kinds)])
    ranks = np.empty(len(kinds), dtype=np.int64)
    ranks[order] = np.arange(len(kinds)) - np.repeat(starts, lengths)
    return ranks


def _blossom(count: int, edges: NDArray[np.int64], weights: NDArray[np.float64]) -> Pairs:
    graph: rustworkx.PyGraph[None, int] = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from([None] * count)
    whole = np.rint(weights * SCALE).astype(np.int64)
    graph.add_edges_from([(u, v, w) for (u, v), w in zip(edges.tolist(), whole.tolist(), strict=True)])
    found = rustworkx.max_weight_matching(graph, weight_fn=int)
    return sorted((min(u, v), max(u, v)) for u, v in found)
