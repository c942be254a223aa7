"""Groups by worth: the twin of ``controller/_native/weave_worth.c``, step by step the same.

Agglomerative clustering with a budget, then hill climbing over moves and exchanges; see
`controller.policies.grouping.worth`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.policies.grouping.worth import Item

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Rounds:
    """Lengths of rounds by the kinds of a group's members; each is computed once.

    `length_s(kinds)` computes a length in seconds; kinds are in ascending order.
    """

    def __init__(self, length_s: Callable[[tuple[int, ...]], float], members: int) -> None:
        self._length_s = length_s
        self.members = members
        self._number: dict[tuple[int, ...], int] = {}
        self._kinds: list[tuple[int, ...]] = []
        self._table = np.full((0, 0), np.nan)
        self._known: dict[tuple[int, ...], float] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def number(self, kinds: tuple[int, ...]) -> int:
        """Return the number of the composition `kinds`."""
        found = self._number.get(kinds)
        if found is None:
            found = self._number[kinds] = len(self._kinds)
            self._kinds.append(kinds)
            if found >= len(self._table):
                wider = np.full((2 * found + 16,) * 2, np.nan)
                wider[: len(self._table), : len(self._table)] = self._table
                self._table = wider
        return found

    def kinds(self, number: int) -> tuple[int, ...]:
        """Return the composition that has this number."""
        return self._kinds[number]

    def union(self, a: int, b: int) -> int:
        """Return the number of the composition of both together."""
        return self.number(tuple(sorted(self._kinds[a] + self._kinds[b])))

    def of(self, kinds: tuple[int, ...]) -> float:
        """Return the length of a round in seconds; infinite for an empty group and for too many members."""
        if not 0 < len(kinds) <= self.members:
            return np.inf
        found = self._known.get(kinds)
        if found is None:
            found = self._known[kinds] = self._length_s(kinds)
        return found

    def joined(self, a: Ints, b: Ints) -> Floats:
        """Return the lengths for each composition of `a` joined with each of `b`, shape (len(a), len(b))."""
        rows = a[:, None]
        found = self._table[rows, b]
        if np.isnan(found).any():
            for i in np.unique(a).tolist():
                for j in np.unique(b).tolist():
                    if np.isnan(self._table[i, j]):
                        length_s = self.of(tuple(sorted(self._kinds[i] + self._kinds[j])))
                        self._table[i, j] = self._table[j, i] = length_s
            found = self._table[rows, b]
        return found


def group_by_worth(
    items: Sequence[Item], rounds: Rounds, gpus: int, *, improve: bool = True
) -> list[tuple[int, ...]]:
    """Return groups, as positions in `items`, that need at most `gpus` GPUs together.

    Args:
        items: The jobs to group.
        rounds: Lengths of rounds by the members' kinds.
        gpus: Number of GPUs there are.
        improve: Do the second step, moves and exchanges.

    Returns:
        The groups. Jobs in none of them are dropped.
    """
    needed = sum(item.gpus for item in items)
    if needed <= gpus:
        return [(number,) for number in range(len(items))]
    classes = [
        _Class(size, [number for number, item in enumerate(items) if item.gpus == size], items, rounds)
        for size in sorted({item.gpus for item in items})
    ]
    counts = share([one.worth_by_count() for one in classes], [one.gpus for one in classes], gpus)
    groups: list[tuple[int, ...]] = []
    for one, count in zip(classes, counts, strict=True):
        found, dropped = one.groups(count)
        groups += exchange(found, dropped, items, rounds) if improve else map(tuple, found)
    return groups


def share(worths: Sequence[Floats], sizes: Sequence[int], gpus: int) -> list[int]:
    """Return how many groups of each size give the highest total worth: a knapsack, solved exactly.

    `worths[i][n]` is the worth of n groups of ``sizes[i]`` GPUs each.
    """
    best = np.zeros(gpus + 1)  # by GPUs that may be used
    choices: list[Ints] = []
    for worth, size in zip(worths, sizes, strict=True):
        found = np.full(gpus + 1, -np.inf)
        choice = np.zeros(gpus + 1, dtype=np.int64)
        for count, value in enumerate(worth[: gpus // size + 1].tolist()):
            used = count * size
            candidate = best[: gpus + 1 - used] + value
            better = candidate > found[used:]
            found[used:][better] = candidate[better]
            choice[used:][better] = count
        best = found
        choices.append(choice)
    counts: list[int] = []
    left = gpus
    for choice, size in zip(reversed(choices), reversed(sizes), strict=True):
        counts.append(int(choice[left]))
        left -= counts[-1] * size
    return counts[::-1]


def exchange(
    groups: Sequence[Sequence[int]], outside: Sequence[int], items: Sequence[Item], rounds: Rounds
) -> list[tuple[int, ...]]:
    """Return `groups` after exchanges of two seats that gain worth, until none does.

    Every group has as many seats as it may have members. An exchange swaps the jobs of two seats, one of
    which may be empty; the jobs `outside` have seats too, where they are worth nothing. Each step carries out
    the exchange that gains most; every step gains, so the search ends.

    Args:
        groups: The groups to begin with, as positions in `items`.
        outside: Positions of the dropped jobs.
        items: The jobs.
        rounds: Lengths of rounds by the members' kinds.
    """
    if not groups:
        return []
    return _Seats(groups, outside, items, rounds).settle()


class _Seats:
    GAIN = 1e-9
    """Relative gain below which an exchange is taken for rounding."""

    def __init__(
        self, groups: Sequence[Sequence[int]], outside: Sequence[int], items: Sequence[Item], rounds: Rounds
    ) -> None:
        self._items, self._rounds = items, rounds
        self._who: list[int] = []  # -1: nobody
        self._seats: list[range] = []
        for group in groups:
            self._seats.append(range(len(self._who), len(self._who) + rounds.members))
            self._who += [*group, *[-1] * (rounds.members - len(group))]
        first_outside = len(self._who)
        self._who += [*outside, -1]
        count = len(self._who)
        self._group = np.array(
            [seat // rounds.members if seat < first_outside else -1 - seat for seat in range(count)]
        )
        self._kind = np.empty(count, dtype=np.int64)  # composition number of who sits there
        self._worth = np.zeros(count)
        self._rest = np.full(count, rounds.number(()))  # composition of the others in the group
        self._rest_worth = np.zeros(count)
        self._value = np.zeros(count)  # of the group
        self._after = np.zeros((count, count))  # [x, y]: of x's group if y's occupant sat in x
        for seat in range(count):
            self._sit(seat)
        for seats in self._seats:
            self._assess(seats)
        self._inside = first_outside
        everyone = np.arange(count)
        self._fill(everyone[:first_outside], everyone)

    def _sit(self, seat: int) -> None:
        who = self._who[seat]
        self._kind[seat] = self._rounds.number(() if who < 0 else (self._items[who].kind,))
        self._worth[seat] = 0.0 if who < 0 else self._items[who].weight * self._items[who].alone_s

    def _assess(self, seats: range) -> None:
        kinds = [self._items[self._who[seat]].kind if self._who[seat] >= 0 else -1 for seat in seats]
        total = sum(self._worth[seat] for seat in seats)
        present = tuple(sorted(kind for kind in kinds if kind >= 0))
        self._value[seats.start : seats.stop] = total / self._rounds.of(present)
        for seat, kind in zip(seats, kinds, strict=True):
            others = list(present)
            if kind >= 0:
                others.remove(kind)
            self._rest[seat] = self._rounds.number(tuple(others))
            self._rest_worth[seat] = total - self._worth[seat]

    def _fill(self, rows: Ints, columns: Ints) -> None:
        length_s = self._rounds.joined(self._rest[rows], self._kind[columns])
        worth = self._rest_worth[rows][:, None] + self._worth[columns][None, :]
        self._after[rows[:, None], columns] = worth / length_s

    def settle(self) -> list[tuple[int, ...]]:
        limit = self.GAIN * float(self._value.max(initial=0.0))
        same = self._group[:, None] == self._group[None, :]
        everyone = np.arange(len(self._who))
        while True:
            gain = self._after + self._after.T
            gain -= self._value[:, None]
            gain -= self._value[None, :]
            gain[same] = 0.0
            best = int(gain.argmax())
            if gain.flat[best] <= limit:
                break
            x, y = divmod(best, len(self._who))
            self._who[x], self._who[y] = self._who[y], self._who[x]
            changed = [seat for seat in (x, y) if seat >= self._inside]
            for seat in (x, y):
                self._sit(seat)
            for seat in (x, y):
                if seat < self._inside:
                    seats = self._seats[seat // self._rounds.members]
                    self._assess(seats)
                    changed += seats
            altered = np.array(changed)
            self._fill(altered[altered < self._inside], everyone)
            self._fill(everyone[: self._inside], altered)
        members = ([self._who[seat] for seat in seats if self._who[seat] >= 0] for seats in self._seats)
        return [tuple(group) for group in members if group]


class _Class:
    """The groups of one size: the cheapest mergers and drops, one by one, until no group is left."""

    def __init__(self, gpus: int, jobs: Sequence[int], items: Sequence[Item], rounds: Rounds) -> None:
        self.gpus = gpus
        self._jobs = jobs
        self._rounds = rounds
        count = len(jobs)
        self._numbers = np.array([rounds.number((items[job].kind,)) for job in jobs])
        self._worth = np.array([items[job].weight * items[job].alone_s for job in jobs])
        self._value = np.array([items[job].weight for job in jobs])
        # what each merger (i, j) and each drop (i, i) would lose
        self._loss = (
            self._value[:, None]
            + self._value[None, :]
            - (self._worth[:, None] + self._worth[None, :]) / rounds.joined(self._numbers, self._numbers)
        )
        np.fill_diagonal(self._loss, self._value)
        self._live = np.ones(count, dtype=np.bool_)
        self._steps: list[tuple[int, int]] = []
        self._total = np.zeros(count + 1)
        self._total[count] = self._value.sum()
        for left in range(count - 1, -1, -1):
            self._total[left] = self._total[left + 1] - self._shrink()

    def worth_by_count(self) -> Floats:
        """Return the total worth of the groups, by the number of groups."""
        return self._total

    def groups(self, count: int) -> tuple[list[list[int]], list[int]]:
        """Return the state with `count` groups: the groups, and the dropped jobs."""
        groups = [[job] for job in self._jobs]
        dropped: list[int] = []
        for i, j in self._steps[: len(groups) - count]:
            (dropped if i == j else groups[i]).extend(groups[j])
            groups[j] = []
        return [group for group in groups if group], dropped

    def _shrink(self) -> float:
        """Carry out the merger or drop that loses least, and return the worth lost."""
        where = int(self._loss.argmin())
        loss = float(self._loss.flat[where])
        i, j = divmod(where, len(self._jobs))
        self._steps.append((i, j))
        self._live[j] = False
        self._loss[j, :] = self._loss[:, j] = np.inf
        if i != j:
            self._worth[i] += self._worth[j]
            union = self._rounds.union(int(self._numbers[i]), int(self._numbers[j]))
            self._numbers[i] = union
            self._value[i] = self._worth[i] / self._rounds.of(self._rounds.kinds(union))
            alive = np.flatnonzero(self._live)
            row = (
                self._value[i]
                + self._value[alive]
                - (self._worth[i] + self._worth[alive])
                / self._rounds.joined(self._numbers[i : i + 1], self._numbers[alive])[0]
            )
            self._loss[i, alive] = self._loss[alive, i] = row
            self._loss[i, i] = self._value[i]
        return loss
