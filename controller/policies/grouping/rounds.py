"""Groups of jobs that take turns (Muri, SIGCOMM'22), and groups by worth.

Interleaving of jobs: round length T, efficiency gamma, the best order of stages (Muri, eq. 1-4).

Each job spends t[j] seconds of an iteration on resource j, in order, for k resources. In a group of p ≤ k
jobs, job i starts its round at stage ``offset[i]``; in slot j it uses resource (offset[i] + j) mod k.
A slot ends when its longest stage has ended (barriers). So no two jobs use a resource at once if all offsets
differ:

    T = Σ_j max_i t_i[(offset_i + j) mod k]                    (equation 3; equation 1 for k = p = 2)
    gamma = 1 - 1/k Σ_j (T - Σ_i t_i[j]) / T = Σ_i Σ_j t_i[j] / (k T)   (equation 4)

gamma is the mean fraction of time that the resources are busy, so 0 < gamma ≤ 1. For one job, T is the length
of its iteration alone. Only differences between offsets matter, so offset_0 is 0. There are (k-1)!/(k-p)!
orders to try: at most six for k = 4.

`spans` returns a group's timeline: when each job uses which resource, as in Muri's figures (SIGCOMM'22).

Groups by worth are merged and dropped at the least loss of worth until the remaining groups fit.

Muri matches groups in pairs by efficiency alone, and then checks whether the cluster has enough GPUs. Here
each job has a weight: the worth of one second of its progress. If a group's rounds last T seconds, the
group's worth per second is

    V = Σ weight_i · alone_i / T

where alone_i is the length of job i's iteration alone.

Start with every job alone. While the groups need more GPUs than there are, either merge two groups or
drop one group, whichever loses the least worth per freed GPU: agglomerative clustering with a budget. Ours.

Muri's multi-round grouping (SIGCOMM'22, Algorithm 1): groups of up to k jobs by rounds of matching.

Finding the best groups of more than two jobs is maximum-weight hypergraph matching, NP-hard. So jobs are
matched in pairs by gamma, each pair becomes a node, the nodes are matched again by the gamma that they
would have together, and so on, ⌈log2 members⌉ times. For k = 2 there is one round, and with `exact` its
result is the optimum.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from controller.errors import BadSpec
from controller.policies.grouping import matching
from controller.policies.grouping.matching import Pairs, Weigh, match

BLOCK = 1 << 16
"""Maximum number of slot lengths that `union_rounds` computes at a time; it bounds the memory used."""

Profile = tuple[float, ...]
"""Seconds per iteration on each resource, in stage order."""


@dataclass(frozen=True, slots=True)
class Interleaving:
    """A group's round: its length, its efficiency gamma, and each job's first stage (`offsets`)."""

    round_s: float
    efficiency: float
    offsets: tuple[int, ...]


def round_s(jobs: Sequence[Profile], offsets: Sequence[int]) -> float:
    """Return the round length T, in seconds, of `jobs` that start at the stages `offsets` (equation 3).

    >>> round_s([(2, 1), (1, 2)], [0, 1])
    3
    """
    k = check(jobs)
    if len(offsets) != len(jobs) or len({offset % k for offset in offsets}) != len(jobs):
        raise BadSpec(
            f"offsets {tuple(offsets)} for {len(jobs)} jobs; want a different one for each, in 0..{k - 1}"
        )
    return _round_s(jobs, [offset % k for offset in offsets])


def _round_s(jobs: Sequence[Profile], offsets: Sequence[int]) -> float:
    turned = [job[offset:] + job[:offset] for job, offset in zip(jobs, offsets, strict=True)]
    length_s: float = sum(map(max, zip(*turned, strict=True)))
    return length_s


def efficiency(jobs: Sequence[Profile], length_s: float) -> float:
    """Return the efficiency gamma of `jobs` in rounds of `length_s` seconds (equation 4).

    >>> efficiency([(2, 1), (2, 1)], 4)
    0.75
    """
    return sum(map(sum, jobs)) / (length_s * len(jobs[0]))


def best(jobs: Sequence[Profile]) -> Interleaving:
    """Return the shortest round of `jobs` over all orders of stages; of equal rounds, the first.

    >>> best([(2.5, 1.25), (1.25, 2.5)])
    Interleaving(round_s=3.75, efficiency=1.0, offsets=(0, 1))
    """
    return _extreme(tuple(map(tuple, jobs)), False)


def worst(jobs: Sequence[Profile]) -> Interleaving:
    """Return the longest round of `jobs` over all orders of stages (an ablation of the paper)."""
    return _extreme(tuple(map(tuple, jobs)), True)


def orders(k: int, p: int) -> list[tuple[int, ...]]:
    """Return every assignment of different first stages, 0 to k - 1, to p jobs; job 0 has stage 0."""
    return [(0, *rest) for rest in itertools.permutations(range(1, k), p - 1)]


@lru_cache(maxsize=1 << 18)
def _extreme(jobs: tuple[Profile, ...], longest: bool) -> Interleaving:
    check(jobs)
    found_s = 0.0 if longest else math.inf
    found: tuple[int, ...] = ()
    for offsets in orders(len(jobs[0]), len(jobs)):
        length_s = _round_s(jobs, offsets)
        if length_s > found_s if longest else length_s < found_s:
            found_s, found = length_s, offsets
    return Interleaving(found_s, min(1.0, efficiency(jobs, found_s)), found)


def check(jobs: Sequence[Profile]) -> int:
    """Return the number of stages, k, of each job.

    Raises BadSpec for no job, more jobs than resources, or impossible stage times.
    """
    if not jobs:
        raise BadSpec("a group needs at least one job")
    k = len(jobs[0])
    if any(len(job) != k for job in jobs):
        raise BadSpec(
            f"jobs with profiles of different numbers of stages: {sorted({len(job) for job in jobs})}"
        )
    if not 1 <= len(jobs) <= k:
        raise BadSpec(f"{len(jobs)} jobs share {k} resources; at most {k} can take turns")
    for number, job in enumerate(jobs):
        if any(not (stage >= 0 and math.isfinite(stage)) for stage in job) or not any(job):
            raise BadSpec(f"job {number} has stage times {job}; they must not be negative, nor all zero")
    return k


def union_rounds(
    left: NDArray[np.float64], right: NDArray[np.float64], *, longest: bool = False
) -> NDArray[np.float64]:
    """Return the round length T of each group of `left` joined with each group of `right`, in seconds.

    Each union has its best order of stages or, with `longest`, its worst. The arguments are stage times of
    shapes (m, p, k) and (n, q, k): m groups of p jobs and n groups of q jobs with k stages each; p + q ≤ k.
    The result has shape (m, n). O(m n k (k-1)!/(k-p-q)!), in compiled loops.
    """
    (m, p, k), (n, q, _) = left.shape, right.shape
    if p + q > k:
        raise BadSpec(f"{p + q} jobs share {k} resources; at most {k} can take turns")
    stages = _stages(k, p + q)
    mine = left[:, np.arange(p), stages[:, :, :p]].max(axis=3)
    theirs = right[:, np.arange(q), stages[:, :, p:]].max(axis=3).transpose(1, 2, 0)[None]
    found = np.empty((m, n))
    block = max(1, BLOCK // (n * stages[..., 0].size)) if n else 1
    for row in range(0, m, block):
        slots_s = np.maximum(mine[row : row + block, :, :, None], theirs)
        lengths_s = slots_s.sum(axis=2)
        found[row : row + block] = lengths_s.max(axis=1) if longest else lengths_s.min(axis=1)
    return found


@cache
def _stages(k: int, jobs: int) -> NDArray[np.int64]:
    """Return, for each order and slot, the stage that each job is in; shape (orders, slots, jobs)."""
    offsets = np.array(orders(k, jobs))
    return (offsets[:, None, :] + np.arange(k)[None, :, None]) % k


@dataclass(frozen=True, slots=True)
class Span:
    """Time span in which job `job` uses resource `resource`, in seconds from the start of the round."""

    job: int
    resource: int
    start_s: float
    end_s: float


def spans(jobs: Sequence[Profile], offsets: Sequence[int]) -> list[Span]:
    """Return the timeline of one round of `jobs` that start at the stages `offsets`, in order of time.

    A slot begins when the previous one has ended, for all jobs at once (the barriers of equation 3), and
    lasts as long as its longest stage. Stages of zero length are left out. No two spans of one resource
    overlap, nor do two spans of one job. Raises BadSpec if two jobs have the same offset.

    >>> spans([(2, 1), (1, 2)], [0, 1])[:2]
    [Span(job=0, resource=0, start_s=0.0, end_s=2.0), Span(job=1, resource=1, start_s=0.0, end_s=2.0)]
    """
    round_s(jobs, offsets)  # for its checks
    k = len(jobs[0])
    found = []
    now_s = 0.0
    for slot in range(k):
        longest_s = 0.0
        for number, (job, offset) in enumerate(zip(jobs, offsets, strict=True)):
            resource = (offset + slot) % k
            if job[resource]:
                found.append(Span(number, resource, now_s, now_s + job[resource]))
                longest_s = max(longest_s, job[resource])
        now_s += longest_s
    return found


Kinds = tuple[int, ...]
"""Kinds of a group's members, in ascending order."""
Floats = NDArray[np.float64]


@dataclass(slots=True)
class Item:
    """A job to group: kind, number of GPUs, seconds per iteration alone, weight.

    Jobs of one kind have equal stage times.
    """

    kind: int
    gpus: int
    alone_s: float
    weight: float = 0.0


class Rounds:
    """Cache of round lengths, by the kinds of a group's members.

    `length_s(kinds)` computes a length in seconds; `members` is the size of the largest group.
    ``len(rounds)`` is the number of lengths computed so far.
    """

    def __init__(self, length_s: Callable[[Kinds], float], members: int) -> None:
        self._length_s = length_s
        self.members = members
        self._known: dict[Kinds, float] = {}
        self._joined: dict[tuple[Kinds, Kinds], float] = {}

    def __len__(self) -> int:
        return len(self._known)

    def joined(self, one: Kinds, other: Kinds) -> float:
        """Return the round length of the union of two groups, in seconds; infinite for too many members."""
        if len(one) + len(other) > self.members:
            return np.inf
        found = self._joined.get((one, other))
        if found is None:
            kinds = tuple(sorted(one + other))
            if (found := self._known.get(kinds)) is None:
                found = self._known[kinds] = self._length_s(kinds)
            self._joined[one, other] = found
        return found


def group_by_worth(items: Sequence[Item], rounds: Rounds, gpus: int) -> list[list[int]]:
    """Merge and drop jobs until all groups together need at most `gpus` GPUs.

    Returns each group as positions in `items`; dropped jobs are in no group. O(n^3) for n jobs of one size.
    """
    if sum(item.gpus for item in items) <= gpus:
        return [[number] for number in range(len(items))]
    merged = [
        _Merged(size, [number for number, item in enumerate(items) if item.gpus == size], items, rounds)
        for size in sorted({item.gpus for item in items})
    ]
    counts = share([(each.gpus, each.total) for each in merged], gpus)
    return [group for each, count in zip(merged, counts, strict=True) for group in each.groups(count)]


def share(worths: Sequence[tuple[int, Floats]], gpus: int) -> list[int]:
    """Return the number of groups of each size that together have the highest worth: an exact knapsack.

    ``worths[i]`` has, for one size, the GPUs of a group, and an array of the total worth of 0, 1, … groups.
    """
    best = np.zeros(gpus + 1)  # the highest worth, by GPUs that may be used
    choices = []
    for size, worth in worths:
        found, choice = np.full(gpus + 1, -np.inf), np.zeros(gpus + 1, dtype=np.int64)
        for count, value in enumerate(worth[: gpus // size + 1].tolist()):
            candidate = best[: gpus + 1 - count * size] + value
            better = candidate > found[count * size :]
            found[count * size :][better] = candidate[better]
            choice[count * size :][better] = count
        best = found
        choices.append(choice)
    counts: list[int] = []
    for choice, (size, _) in zip(reversed(choices), reversed(worths), strict=True):
        counts.append(int(choice[gpus]))
        gpus -= counts[-1] * size
    return counts[::-1]


class _Merged:
    """Jobs of one size, and the steps that merge or drop their groups until none is left, least loss first.

    `total[n]` is the worth of all groups together when n groups are left.
    """

    def __init__(self, gpus: int, jobs: Sequence[int], items: Sequence[Item], rounds: Rounds) -> None:
        self.gpus = gpus
        self._jobs = jobs
        self._steps: list[tuple[int, int]] = []
        kinds: list[Kinds] = [(items[job].kind,) for job in jobs]
        worth = np.array([items[job].weight * items[job].alone_s for job in jobs])
        value = np.array([items[job].weight for job in jobs])
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        lengths = np.array([[rounds.joined(one, other) for other in numbers] for one in numbers])
        which = np.array([numbers[kind] for kind in kinds])
        both = lengths[which[:, None], which]
        # the loss by each merger (i, j) and each drop (i, i)
        loss = value[:, None] + value - (worth[:, None] + worth) / both
        np.fill_diagonal(loss, value)
        live = np.ones(len(jobs), dtype=np.bool_)
        self.total = np.zeros(len(jobs) + 1)
        self.total[-1] = value.sum()
        for left in range(len(jobs) - 1, -1, -1):
            i, j = divmod(int(loss.argmin()), len(jobs))
            self._steps.append((i, j))
            self.total[left] = self.total[left + 1] - loss[i, j]
            live[j] = False
            loss[j, :] = loss[:, j] = np.inf
            if i == j:
                continue
            worth[i] += worth[j]
            kinds[i] = tuple(sorted(kinds[i] + kinds[j]))
            value[i] = worth[i] / rounds.joined(kinds[i], ())
            others = np.flatnonzero(live)
            both = np.array([rounds.joined(kinds[i], kinds[other]) for other in others.tolist()])
            loss[i, others] = loss[others, i] = value[i] + value[others] - (worth[i] + worth[others]) / both
            loss[i, i] = value[i]

    def groups(self, count: int) -> list[list[int]]:
        """Return the groups, as positions of jobs, at the step with `count` groups left."""
        groups = [[job] for job in self._jobs]
        for i, j in self._steps[: len(groups) - count]:
            if i != j:
                groups[i] += groups[j]
            groups[j] = []
        return [group for group in groups if group]


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
    matcher: Matcher = match,
) -> list[GroupPlan]:
    """Divide all jobs into groups of at most `members` jobs; return the groups in order of their first jobs.

    Args:
        profiles: Stage times of each job, in seconds, all of the same length k.
        members: Maximum number of jobs in a group, 1 to k; None: k.
        worst_order: Whether to interleave as badly as possible (an ablation).
        matcher: Function to use for matching.

    >>> [plan.jobs for plan in group([(8, 2), (2, 8), (4, 1), (1, 4)])]
    [(0, 1), (2, 3)]
    """
    if not profiles:
        return []
    k = len(profiles[0])
    members = k if members is None else members
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
        pairs = matcher(len(nodes), weigh, numbers, where)
        if members == 3 and len(nodes) == len(profiles):
            pairs = _heaviest(pairs, weigh, len(nodes) // 3)  # the remaining jobs become the third members
        nodes = _merge(nodes, pairs)
    interleave = worst if worst_order else best
    plans = (tuple(sorted(node)) for node in nodes)
    return sorted(
        (GroupPlan(jobs, interleave([profiles[job] for job in jobs])) for jobs in plans),
        key=lambda plan: plan.jobs,
    )


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
