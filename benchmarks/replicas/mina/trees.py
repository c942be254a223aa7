"""Choice of jobs' trees: trees without a conflict, any trees, or MINA's choice.

A conflict is a switch that two trees have in common.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from benchmarks.replicas.mina.fabric import Draws, Fabric, Tree

MOST_TREES: Final = 5
"""Number of a job's trees that MINA considers, drawn when the job arrives."""
MOST_SHARING: Final = 30
"""Most jobs that share after it merges groups."""
ENOUGH: Final = 10
"""Scores of groups of a size after which it trusts their mean and deviation."""
LEAST_DEVIATION: Final = 0.02


@dataclass(frozen=True, slots=True)
class Running:
    """A job that has hosts: its number, its kind, and its hosts."""

    number: int
    kind: tuple[int, int]
    """Number of hosts, and number of the model."""
    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Times of jobs, weighted by hosts: actual, and with every sum or none in switches."""

    took: float
    best: float
    worst: float

    def __add__(self, other: Score) -> Score:
        """Return the score of both together."""
        return Score(self.took + other.took, self.best + other.best, self.worst + other.worst)

    @property
    def efficiency(self) -> float:
        """1: as good as with all sums in switches; 0: as with none; NaN: both times are equal."""
        return (self.took - self.worst) / (self.best - self.worst) if self.best != self.worst else math.nan


Sharing = tuple[tuple[int, int], ...]
Share = Callable[[Sharing], Score]
"""Returns the score of jobs of these kinds that take turns at one switch."""


class Build(Protocol):
    """A policy: called when jobs have come or gone, it returns each job's tree, or None, by number."""

    def __call__(self, running: Sequence[Running]) -> Mapping[int, Tree | None]:
        """Return the trees of all running jobs."""


class FirstTrees:
    """Each job keeps the first tree that has no conflict with other jobs' trees."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._trees: dict[int, Tree | None] = {}

    def __call__(self, running: Sequence[Running]) -> Mapping[int, Tree | None]:
        """Return all trees, of new and of older jobs."""
        self._trees = {job.number: self._trees[job.number] for job in running if job.number in self._trees}
        for job in running:
            if job.number not in self._trees:
                self._trees[job.number] = next(self._good(job), None)
        return self._trees

    def _good(self, job: Running) -> Iterator[Tree]:
        taken = 0
        for tree in self._trees.values():
            taken |= tree.bits if tree else 0
        for root in range(self._fabric.roots(job.hosts)):
            tree = self._fabric.tree(job.hosts, root)
            if not tree.bits & taken:
                yield tree


@dataclass(slots=True)
class _Tracker:
    """The mean and the deviation of scores (Welford's way)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        if not math.isnan(value):
            self.count += 1
            before = value - self.mean
            self.mean += before / self.count
            self.squares += before * (value - self.mean)

    @property
    def likely(self) -> float:
        """A bound that a score is unlikely to exceed."""
        return self.mean + max(math.sqrt(self.squares / self.count), LEAST_DEVIATION)


@dataclass
class MinaTrees:
    """MINA's: as many trees as possible without conflicts; the other jobs share with them, if that pays.

    Of up to `MOST_TREES` trees of each job it finds a large independent set of the graph of conflicts. A job
    whose trees all have conflicts joins the jobs in conflict with one of them. If these are several groups,
    they are merged, best first, if that pays by a simulation of their jobs on one switch.
    """

    fabric: Fabric
    share: Share
    draws: Draws = field(default_factory=lambda: Draws(42))
    _trees: list[tuple[Running, Tree]] = field(default_factory=list)
    _trackers: dict[int, _Tracker] = field(default_factory=lambda: defaultdict(_Tracker))

    def __call__(self, running: Sequence[Running]) -> Mapping[int, Tree | None]:
        """Return all trees, also of older jobs, whose trees may have changed."""
        present = {job.number for job in running}
        self._trees = [each for each in self._trees if each[0].number in present]
        known = {job.number for job, _ in self._trees}
        for job in running:
            if job.number not in known:
                roots = range(self.fabric.roots(job.hosts))
                # the public simulator draws only where there are more
                drawn = self.draws.sample(roots, MOST_TREES) if len(roots) > MOST_TREES else roots
                self._trees += [(job, self.fabric.tree(job.hosts, root)) for root in drawn]
        trees = _Groups(self._trees, self.share, self._trackers).trees()
        return {job.number: trees.get(job.number) for job in running}


class _Groups:
    """One choice of trees, and of the groups of jobs that share."""

    def __init__(
        self, trees: Sequence[tuple[Running, Tree]], share: Share, trackers: dict[int, _Tracker]
    ) -> None:
        self._trees, self._share, self._trackers = trees, share, trackers
        self._near = conflicts(trees)
        chosen = independent(self._near)
        self._groups: dict[int, list[int]] = {number: [at] for number, at in enumerate(chosen)}
        self._group_of = {at: number for number, at in enumerate(chosen)}
        self._tree_of = {trees[at][0].number: at for at in chosen}

    def trees(self) -> dict[int, Tree]:
        """Return the trees of the jobs that get one."""
        waiting = self._join_only_group()
        while waiting and (best := self._best_merge()) is not None:
            self._merge(*best)
        return {number: self._trees[at][1] for number, at in self._tree_of.items()}

    def _beside(self) -> list[tuple[tuple[int, ...], int]]:
        """Return the groups that trees of jobs without one meet, fewest first, and the tree."""
        found = []
        for at, (job, _) in enumerate(self._trees):
            if job.number not in self._tree_of:
                groups = {self._group_of[near] for near in bits(self._near[at]) if near in self._group_of}
                found.append((tuple(sorted(groups)), at))
        return sorted(found, key=lambda each: (len(each[0]), each))

    def _join_only_group(self) -> bool:
        """Add jobs that meet only one group to it; return whether others are left."""
        for groups, at in self._beside():
            if len(groups) > 1:
                return True
            if self._trees[at][0].number not in self._tree_of:
                self._add(at, groups[0])
        return False

    def _add(self, at: int, group: int) -> None:
        self._groups[group].append(at)
        self._group_of[at] = group
        self._tree_of[self._trees[at][0].number] = at

    def _best_merge(self) -> tuple[tuple[int, ...], list[int]] | None:
        """Return the groups to merge, and the trees to add, with the largest gain; None: none gains."""
        chances: dict[tuple[int, ...], dict[int, int]] = {}
        for groups, at in self._beside():
            chances.setdefault(groups, {}).setdefault(self._trees[at][0].number, at)
        best, most = None, 0.0
        for groups, trees in chances.items():
            adding = list(trees.values())
            kinds = self._kinds([*adding, *(at for group in groups for at in self._groups[group])])
            if len(kinds) > MOST_SHARING:
                continue
            before = self._before(groups, adding).efficiency
            tracker = self._trackers[len(kinds)]
            if tracker.count >= ENOUGH and tracker.likely - before < most:
                continue
            after = self._share(kinds).efficiency
            tracker.add(after)
            if after - before > most:
                best, most = (groups, adding), after - before
        return best

    def _kinds(self, trees: Sequence[int]) -> Sharing:
        return tuple(sorted(self._trees[at][0].kind for at in trees))

    def _before(self, groups: Sequence[int], adding: Sequence[int]) -> Score:
        """Return the score of groups that stay apart, and of jobs that stay without switches."""
        together = [self._share(self._kinds(self._groups[group])) for group in groups]
        alone = (self._share(self._kinds([at])) for at in adding)
        without = (Score(each.worst, each.best, each.worst) for each in alone)
        return sum([*together, *without], Score(0.0, 0.0, 0.0))

    def _merge(self, groups: Sequence[int], adding: Sequence[int]) -> None:
        for group in groups[1:]:
            moved = self._groups.pop(group)
            self._groups[groups[0]] += moved
            self._group_of.update(dict.fromkeys(moved, groups[0]))
        for at in adding:
            self._add(at, groups[0])


def conflicts(trees: Sequence[tuple[Running, Tree]]) -> list[int]:
    """Return, for each tree, the bits of trees that exclude it: of the same job, or in conflict."""
    near = [0] * len(trees)
    for at, (job, tree) in enumerate(trees):
        for other in range(at):
            if job.number == trees[other][0].number or tree.meets(trees[other][1]):
                near[at] |= 1 << other
                near[other] |= 1 << at
    return near


def independent(near: Sequence[int]) -> list[int]:
    """Return a large independent set of the graph with these neighbours, as bits: in order of numbers.

    A node whose neighbours are all neighbours of each other is in some maximum set, so it is chosen. If there
    is none, the node with most neighbours is left out. Nodes left out are added at the end if possible.

    >>> independent([0b010, 0b101, 0b010])
    [0, 2]
    """
    left, taken = (1 << len(near)) - 1, 0
    look = left  # nodes that may have become simplicial
    while left:
        found = next((at for at in bits(look) if _is_simplicial(near, left, at)), None)
        if found is None:
            gone = 1 << max(bits(left), key=lambda at: ((near[at] & left).bit_count(), -at))
            look = 0
        else:
            taken |= 1 << found
            gone = near[found] & left | 1 << found
            look = look >> found << found
        left &= ~gone
        for at in bits(gone):
            look |= near[at]
        look &= left
    for at in range(len(near)):
        if not near[at] & taken and not taken >> at & 1:
            taken |= 1 << at
    return list(bits(taken))


def _is_simplicial(near: Sequence[int], left: int, at: int) -> bool:
    around = near[at] & left
    return all(not around & ~(near[other] | 1 << other) for other in bits(around))


def bits(number: int) -> Iterator[int]:
    """Return the places of the bits that are set, lowest first.

    >>> list(bits(0b1010))
    [1, 3]
    """
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
