"""Groups by worth: merge and drop groups at the least loss of worth until the remaining groups fit.

Muri matches groups in pairs by efficiency alone, and then checks whether the cluster has enough GPUs. Here
each job has a weight: the worth of one second of its progress. If a group's rounds last T seconds, the
group's worth per second is

    V = Σ weight_i · alone_i / T

where alone_i is the length of job i's iteration alone.

Start with every job alone. While the groups need more GPUs than there are, either merge two groups or
drop one group, whichever loses the least worth per freed GPU: agglomerative clustering with a budget. Ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
