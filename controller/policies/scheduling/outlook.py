"""Prediction of a decision's outcome: when each job would end if no further jobs arrived.

The groups that a decision starts run to their ends; when a member ends, its partners get faster. Waiting jobs
start alone as soon as their GPUs are free: in order of the queue, the first that fits. Choosing the best
decision by this prediction is one step of rollout in dynamic programming (Bertsekas, *Rollout, Policy
Iteration, and Distributed Reinforcement Learning*, 2020). It runs in C (`controller._native`); its twin in
Python is `tests.twins.outlook`.

Worth of a draft per second, less what its starts and stops cost: for jobs whose ends nobody can foresee.

A group that starts does nothing until all of its members have started, and is expected to stay as it is until
its first member ends. Over that life of T seconds it is worth T / (T + start) of what it is worth while it
runs. A job that is stopped has to start again later: its worth for so long is lost once, and is spread over
the mean life of the groups for which it was stopped. Groups that go on cost nothing. Ours.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence, Set
from operator import mul

from controller import _native
from controller.policies.grouping.worth import Item, Rounds

Positions = tuple[int, ...]


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

    def __init__(self, jobs: Sequence[Item], gpus: int, rounds: Rounds) -> None:
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


def net_worth(
    draft: Sequence[Positions],
    kept: Set[Positions],
    jobs: Sequence[Item],
    round_s: Callable[[Positions], float],
) -> float:
    """Return the draft's worth per second after starts and stops. O(members).

    Args:
        draft: Groups that are to run, as positions in `jobs`.
        kept: Groups that run now; those of them in the draft go on.
        jobs: All jobs that the draft or `kept` names.
        round_s: Returns the length in seconds of a round of these kinds, which are in ascending order.

    >>> jobs = [Item(0, 1, 1.0, 2.0, left_s=30.0, restart_s=10.0), Item(0, 1, 1.0, 1.0, 0.0, 100.0, 10.0)]
    >>> net_worth([(0,)], {(1,)}, jobs, lambda kinds: 1.0)  # 2 for 30 of 40 s, less 10 s of the other in 30
    1.1666666666666667
    """
    total, lives = 0.0, []
    for group in draft:
        length_s = round_s(tuple(sorted(jobs[member].kind for member in group)))
        worth = sum(jobs[member].weight * jobs[member].alone_s for member in group) / length_s
        if group in kept:
            total += worth
            continue
        life_s = min(jobs[member].left_s / jobs[member].alone_s for member in group) * length_s
        total += worth * life_s / (life_s + sum(jobs[member].restart_s for member in group))
        lives.append(life_s)
    runs = {member for group in draft for member in group}
    stopped = [jobs[member] for group in kept for member in group if member not in runs]
    if stopped and lives:
        total -= sum(job.weight * job.restart_s for job in stopped) * len(lives) / sum(lives)
    return total
