"""Prediction of a decision's outcome: when each job would end if no further jobs arrived.

The groups that a decision starts run to their ends; when a member ends, its partners get faster. Waiting jobs
start alone as soon as their GPUs are free: in order of the queue, the first that fits. Choosing the best
decision by this prediction is one step of rollout in dynamic programming (Bertsekas, *Rollout, Policy
Iteration, and Distributed Reinforcement Learning*, 2020). It runs in C (`controller._native`); its twin in
Python is `tests.twins.outlook`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from operator import mul
from typing import Protocol

from controller import _native
from controller.policies.grouping.worth import Rounds

Positions = tuple[int, ...]


class Ahead(Protocol):
    """The rest of a job: its kind, GPUs, iterations, seconds of each alone, and of a start."""

    @property
    def kind(self) -> int: ...  # noqa: D102
    @property
    def gpus(self) -> int: ...  # noqa: D102
    @property
    def iterations(self) -> float: ...  # noqa: D102
    @property
    def alone_s(self) -> float: ...  # noqa: D102
    @property
    def restart_s(self) -> float: ...  # noqa: D102


def fill(sizes: Sequence[int], order: Sequence[int], gpus: int) -> list[Positions]:
    """Return the jobs of `order` that run, alone, if each that fits into `gpus` GPUs is taken.

    >>> fill([8, 4, 16, 2], [2, 0, 1, 3], 14)
    [(0,), (1,), (3,)]
    """
    taken: list[Positions] = []
    for position in order:
        if sizes[position] <= gpus:
            gpus -= sizes[position]
            taken.append((position,))
    return taken


class Outlook:
    """When jobs end under one draft or another."""

    def __init__(self, jobs: Sequence[Ahead], gpus: int, rounds: Rounds) -> None:
        """Take `jobs`, in order of the queue, a cluster of `gpus` GPUs, and lengths of rounds by kinds."""
        self._count, self._gpus, self._rounds = len(jobs), gpus, rounds
        self._columns = (
            array("i", [job.kind for job in jobs]),
            array("i", [job.gpus for job in jobs]),
            array("d", [job.iterations for job in jobs]),
            array("d", [job.alone_s for job in jobs]),
            array("d", [job.restart_s for job in jobs]),
        )
        self._pointers = [column.buffer_info()[0] for column in self._columns]

    def ends_s(self, draft: Sequence[Positions], runs: Sequence[bool]) -> array[float]:
        """Return in how many seconds each job would end; 0 for one that the cluster has no room for.

        O(n log n) for n jobs of a few sizes.

        Args:
            draft: Groups that run from now on, as positions in the jobs.
            runs: Whether each of them runs already; the others first pay the starts of all their members.
        """
        numbers: list[int] = []
        for group, already in zip(draft, runs, strict=True):
            numbers += (already, len(group), *group)
        named = array("i", numbers)
        found = array("d", bytes(8 * self._count))
        call, rounds = _native.load().weave_ends, self._rounds
        at, into = named.buffer_info()[0], found.buffer_info()[0]
        while not rounds.answered(
            call(rounds.pointer, self._count, *self._pointers, self._gpus, len(numbers), at, into)
        ):
            pass
        return found

    def cost(
        self,
        draft: Sequence[Positions],
        runs: Sequence[bool],
        ages_s: Sequence[float],
        factors: Sequence[float],
        power: float,
    ) -> float:
        """Return Σ factor · JCT^power over the jobs, where a JCT is a second at least.

        Args:
            draft: As in `ends_s`.
            runs: As there.
            ages_s: Seconds since each job's arrival.
            factors: How much each job counts.
            power: Of the completion times.
        """
        ends = self.ends_s(draft, runs)
        jcts = [age_s + end_s for age_s, end_s in zip(ages_s, ends, strict=True)]
        jcts = [jct_s if jct_s > 1.0 else 1.0 for jct_s in jcts]
        if power != 1.0:
            jcts = [pow(jct_s, power) for jct_s in jcts]
        return math.fsum(map(mul, factors, jcts))
