"""Muri's multi-round grouping (SIGCOMM'22, Algorithm 1): groups of up to k jobs by rounds of matching.

Finding the best groups of more than two jobs is maximum-weight hypergraph matching, NP-hard. So jobs are
matched in pairs by gamma, each pair becomes a node, the nodes are matched again by the gamma that they
would have together, and so on, ⌈log2 members⌉ times. For k = 2 there is one round, and with `exact` its
result is the optimum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.errors import BadSpec
from controller.policies.grouping import matching
from controller.policies.grouping.efficiency import Interleaving, Profile, best, check, union_rounds, worst
from controller.policies.grouping.matching import Pairs, Weigh, match

Matcher = Callable[[int, Weigh, Sequence[int], NDArray[np.float64] | None], Pairs]
"""A matching function: positional parameters and result of `controller.policies.grouping.matching.match`."""


FEW = 32
"""Maximum number of groups in a matching whose gammas are kept for later matchings."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group: its jobs, as positions in ascending order, and the interleaving of their stages."""

    jobs: tuple[int, ...]
    interleaving: Interleaving


def group(
    profiles: Sequence[Profile],
    *,
    members: int | None = None,
    worst_order: bool = False,
    exact: bool = False,
    matcher: Matcher | None = None,
) -> list[GroupPlan]:
    """Divide all jobs into groups of at most `members` jobs; return the groups in order of their first jobs.

    Args:
        profiles: Stage times of each job, in seconds, all of the same length k.
        members: Maximum number of jobs in a group, 1 to k; None: k.
        worst_order: Whether to interleave as badly as possible (an ablation).
        exact: Whether to match on the full graph, even if it has more than `matching.BLOCK` nodes.
        matcher: Function to use for matching; None: `match`.

    Raises BadSpec if `members` is not in 1..k or a profile is invalid.

    >>> [plan.jobs for plan in group([(8, 2), (2, 8), (4, 1), (1, 4)])]
    [(0, 1), (2, 3)]
    """
    if not profiles:
        return []
    k = len(profiles[0])
    members = k if members is None else members
    if not 1 <= members <= k:
        raise BadSpec(f"groups of {members} jobs on {k} resources; 1 to {k} are possible")
    for profile in {*profiles}:
        _check(profile)
        if len(profile) != k:
            raise BadSpec(f"profiles of {k} and of {len(profile)} stages in one grouping")
    chosen = matcher or functools.partial(match, exact=exact)
    stages = np.array(profiles, dtype=np.float64)
    number_of: dict[Profile, int] = {}
    kind_of = [number_of.setdefault(profile, len(number_of)) for profile in profiles]
    nodes: list[tuple[int, ...]] = [(number,) for number in range(len(profiles))]
    numbers = kind_of
    for number in range(math.ceil(math.log2(members))):
        if number:
            kinds: dict[tuple[int, ...], int] = {}
            numbers = [
                kinds.setdefault(tuple(sorted([kind_of[job] for job in node])), len(kinds)) for node in nodes
            ]
        weigh = weights(stages, nodes, members, worst_order=worst_order)
        where = places(stages, nodes) if len(nodes) > matching.BLOCK else None
        pairs = chosen(len(nodes), weigh, numbers, where)
        if members == 3 and len(nodes) == len(profiles):
            pairs = _heaviest(pairs, weigh, len(nodes) // 3)  # the remaining jobs become the third members
        nodes = _merge(nodes, pairs)
    interleave = worst if worst_order else best
    plans = (tuple(sorted(node)) for node in nodes)
    return sorted(
        (GroupPlan(jobs, interleave([profiles[job] for job in jobs])) for jobs in plans),
        key=lambda plan: plan.jobs,
    )


@functools.lru_cache(maxsize=1 << 12)
def _check(profile: Profile) -> None:
    check((profile,))


def weights(
    stages: NDArray[np.float64],
    nodes: Sequence[tuple[int, ...]],
    members: int,
    *,
    worst_order: bool = False,
) -> Weigh:
    """Return a function that gives the weights for a matching: the gamma of the union of two `nodes`.

    Args:
        stages: Stage times in seconds, shape (jobs, k).
        nodes: Groups of jobs, as positions in `stages`.
        members: Maximum number of jobs in a group; larger unions have weight 0.
        worst_order: Whether to interleave as badly as possible (an ablation).

    Returns:
        A function of two arrays of nodes, `left` and `right`, that returns the weight of each pair of a left
        and a right node, shape (len(left), len(right)).
    """
    remembered = _joins(members, worst_order)

    def weigh(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        mine = [nodes[node] for node in left.tolist()]
        if right is not left:
            return _gamma(stages, mine, [nodes[node] for node in right.tolist()], members, worst_order)
        if len(mine) > FEW:
            return _gamma(stages, mine, mine, members, worst_order)
        return remembered.gamma(stages, mine)

    return weigh


@functools.cache
def _joins(members: int, worst_order: bool) -> _Joins:
    """Return the cache of gammas for groups of at most `members` jobs."""
    return _Joins(members, worst_order)


class _Joins:
    """Cache of gammas of joined groups, with the stage times of the groups' jobs as keys.

    The same stage times recur, because there are few kinds of jobs.
    """

    MOST = 1024
    """Number of different groups beyond which the cache is emptied."""

    def __init__(self, members: int, worst_order: bool) -> None:
        self._members, self._worst_order = members, worst_order
        self._number: dict[bytes, int] = {}
        self._known = np.full((0, 0), np.nan)

    def gamma(self, stages: NDArray[np.float64], nodes: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        """Return the gamma of the union of each two `nodes`, shape (nodes, nodes)."""
        if len(self._number) > self.MOST:
            self._number.clear()
            self._known = np.full((0, 0), np.nan)
        own = [row.tobytes() for row in stages]
        rows = [b"".join([own[job] for job in node]) for node in nodes]
        numbers = [self._number.setdefault(row, len(self._number)) for row in rows]
        if len(self._number) > len(self._known):
            wider = np.full((2 * len(self._number),) * 2, np.nan)
            wider[: len(self._known), : len(self._known)] = self._known
            self._known = wider
        where = np.array(numbers)[:, None], numbers
        found: NDArray[np.float64] = self._known[where]
        if np.isnan(found).any():
            self._known[where] = found = _gamma(stages, nodes, nodes, self._members, self._worst_order)
        return found


def _gamma(
    stages: NDArray[np.float64],
    left: Sequence[tuple[int, ...]],
    right: Sequence[tuple[int, ...]],
    members: int,
    worst_order: bool,
) -> NDArray[np.float64]:
    """Return the gamma of the union of each group of `left` with each group of `right`.

    The result has shape (left, right); it is 0 for unions of more than `members` jobs.
    """
    gamma = np.zeros((len(left), len(right)))
    mine = _by_size(stages, left)
    theirs = mine if right is left else _by_size(stages, right)
    for p, (rows, a) in mine.items():
        for q, (columns, b) in theirs.items():
            if p + q <= members:
                length_s = union_rounds(a, b, longest=worst_order)
                total = a.sum(axis=(1, 2))[:, None] + b.sum(axis=(1, 2))[None, :]
                gamma[np.ix_(rows, columns)] = total / (stages.shape[1] * length_s)
    return gamma


def _by_size(
    stages: NDArray[np.float64], nodes: Sequence[tuple[int, ...]]
) -> dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Divide the groups in `nodes` by their size.

    Returns, for each size, the positions of the groups in `nodes`, and the stage times of the groups' jobs,
    shape (groups, size, k).
    """
    rows: dict[int, list[int]] = {}
    for row, node in enumerate(nodes):
        rows.setdefault(len(node), []).append(row)
    return {
        size: (np.array(where), stages[np.array([nodes[row] for row in where])])
        for size, where in rows.items()
    }


def places(stages: NDArray[np.float64], nodes: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
    """Return points that lie near each other for groups that interleave well, shape (nodes, k).

    Two jobs interleave without gaps if one job's stage times, cyclically shifted, equal the other job's stage
    times. So a group's point is the mean of its jobs' stage times, cyclically shifted until the longest
    time is first.
    """
    k = stages.shape[1]
    means = np.array([stages[list(node)].mean(axis=0) for node in nodes])
    turn = (means.argmax(axis=1)[:, None] + np.arange(k)[None, :]) % k
    return np.take_along_axis(means, turn, axis=1)


def _heaviest(pairs: Pairs, weigh: Weigh, count: int) -> Pairs:
    """Return the `count` heaviest of `pairs`."""

    def weight(pair: tuple[int, int]) -> float:
        return float(weigh(np.array(pair[:1]), np.array(pair[1:]))[0, 0])

    return sorted(sorted(pairs, key=weight, reverse=True)[:count])


def _merge(nodes: Sequence[tuple[int, ...]], pairs: Pairs) -> list[tuple[int, ...]]:
    matched = {number for pair in pairs for number in pair}
    merged = [nodes[u] + nodes[v] for u, v in pairs]
    merged += [node for number, node in enumerate(nodes) if number not in matched]
    return sorted(merged, key=min)
