"""Graphs for tests of matchings, and what an independent implementation finds for them."""

from __future__ import annotations

import networkx
import numpy as np
from numpy.typing import NDArray

from controller.policies.grouping import matching

Table = NDArray[np.float64]


def table_of(count: int, seed: int, distinct: int) -> Table:
    rng = np.random.default_rng(seed)
    values = rng.random(distinct) if distinct else rng.random(count * count)
    table = rng.choice(values, size=(count, count))
    table = np.triu(table, 1)
    table[rng.random((count, count)) < 0.2] = 0
    return table + table.T


def weigher(table: Table) -> matching.Weigh:
    return lambda left, right: table[np.ix_(left, right)]


def exact(table: Table) -> float:
    graph = networkx.Graph()
    for u, v in np.argwhere(np.triu(table, 1) > 0).tolist():
        graph.add_edge(u, v, weight=float(table[u, v]))
    return sum(float(table[u, v]) for u, v in networkx.max_weight_matching(graph))


def total(table: Table, pairs: matching.Pairs) -> float:
    nodes = [node for pair in pairs for node in pair]
    assert len(nodes) == len(set(nodes))
    assert all(table[u, v] > 0 for u, v in pairs)
    return sum(float(table[u, v]) for u, v in pairs)


def greedy(count: int, weigh: matching.Weigh) -> matching.Pairs:
    """Return a matching by taking the heaviest edge again and again: at least half of the maximum weight."""
    everyone = np.arange(count)
    weights = weigh(everyone, everyone)
    upper = np.argwhere(np.triu(weights > 0, 1))
    order = np.argsort(-weights[upper[:, 0], upper[:, 1]], kind="stable")
    taken: set[int] = set()
    pairs: matching.Pairs = []
    for u, v in upper[order].tolist():
        if u not in taken and v not in taken:
            taken |= {u, v}
            pairs.append((u, v))
    return sorted(pairs)
