"""Themis as Muri's public simulator has it: shares by a convex program, and whose share is owed most runs.

At every event each job j gets a share x_j of its GPUs' time that makes the worst finish-time fairness least:

    minimise max_j (age_j + left_s_j / x_j) / alone_j    with 0 ≤ x_j ≤ 1,  Σ_j gpus_j x_j ≤ GPUs

and the jobs with the largest share per second that they have run come first. As there, *alone* counts
iterations, not seconds: those done and those left, each over the part of its GPUs that a job would have in
its n-th of the cluster.

Where a job that nothing can help fixes the optimum, the others' shares are not unique, and what the
original's interior-point solver then returns depends on its version: the authors' average and that of the
same code with another version differ by 4 %. Here the program is solved exactly, and shares are
lexicographically best (`shares`). Results come near both and equal neither; with that solver in the place of
`shares` they are equal.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from controller.policies.scheduling.placement import Counts, Slots
from controller.policies.scheduling.policy import Decision, Group, JobState, View

Floats = NDArray[np.float64]


class ThemisReplica:
    """Jobs in order of share over time run; all are placed anew at each event."""

    name = "themis"

    def __init__(self) -> None:
        self._queue: list[JobState] = []
        self._alone: dict[int, float] = {}  # of each job's iterations that are done, by order of arrival
        self._before: dict[int, tuple[float, float]] = {}  # iterations left, and part of its GPUs, last time
        self._owed_s: dict[int, float] = {}  # what its shares add up to
        self._last_s = 0.0

    def decide(self, view: View) -> Decision:
        """Return the jobs that are owed most, as many as fit."""
        now_s = view.now_s
        for job in view.finished:
            for state in (self._alone, self._before, self._owed_s):
                state.pop(job.order)
        gone = {*view.finished}
        self._queue = [job for job in self._queue if job not in gone] + list(view.arrived)
        if not self._queue:
            return Decision([])
        self._rank(view)
        self._last_s = now_s
        counts = Counts(view.cluster)
        chosen = [job for job in self._queue if counts.take(job.spec.gpus)]
        self._queue.sort(key=lambda job: -job.spec.gpus)
        slots = Slots(view.cluster)
        groups = []
        for job in sorted(chosen, key=lambda job: -job.spec.gpus):
            gpus = slots.take(job.spec.gpus)
            if gpus is not None:
                groups.append(Group((job,), gpus, reason="owed most"))
        return Decision(groups)

    def _rank(self, view: View) -> None:
        """Sort the queue, those who are owed most first; equals stay as they were."""
        now_s, jobs = view.now_s, self._queue
        part = math.ceil(view.cluster.gpus / len(jobs))
        left = np.array([job.iterations_left(now_s) for job in jobs])
        gpus = np.array([float(job.spec.gpus) for job in jobs])
        own = np.minimum(part / gpus, 1.0)
        for job, iterations, mine in zip(jobs, left.tolist(), own.tolist(), strict=True):
            before, part_before = self._before.get(job.order, (iterations, 1.0))
            self._alone[job.order] = self._alone.get(job.order, 0.0) + (before - iterations) / part_before
            self._before[job.order] = (iterations, mine)
        alone = np.array([self._alone[job.order] for job in jobs]) + left / own
        age_s = np.array([now_s - job.spec.arrival_s for job in jobs])
        left_s = left * np.array([job.alone_s for job in jobs])
        found = shares(age_s, left_s, alone, gpus, view.cluster.gpus).tolist()
        keys: dict[int, tuple[float, float, float]] = {}
        for job, share in zip(jobs, found, strict=True):
            ran_s = job.attained_s(now_s)
            owed_s = self._owed_s.get(job.order, 0.0)
            keys[job.order] = (share / ran_s if ran_s else share * 1e9, owed_s - ran_s, share)
            self._owed_s[job.order] = owed_s + share * (now_s - self._last_s)
        jobs.sort(key=lambda job: keys[job.order], reverse=True)


def shares(age_s: Floats, left_s: Floats, alone: Floats, gpus: Floats, capacity: float) -> Floats:
    """Return the shares x that make the largest (age + left / x) / alone least, then the next largest...

    All are between 0 and 1, and ``gpus @ x`` is at most `capacity`; `left_s` and `alone` are positive.

    >>> shares(np.zeros(2), np.array([1.0, 3.0]), np.ones(2), np.ones(2), 1.0).tolist()
    [0.25, 0.75]
    """
    found = np.ones(len(age_s))
    open_ = np.arange(len(age_s))
    while len(open_) and gpus[open_].sum() > capacity:
        age, left, by, need = age_s[open_], left_s[open_], alone[open_], gpus[open_]
        full = (age + left) / by  # with all of its share; nobody gets below the largest of these
        level = float(full.max())
        if need @ (left / _room_s(age, left, by, level)) >= capacity:
            level = _level(age, left, by, need, capacity, level)
            found[open_] = left / _room_s(age, left, by, level)
            return found
        capacity -= float(need[full >= level].sum())
        open_ = open_[full < level]
    return found


def _level(age: Floats, left: Floats, by: Floats, need: Floats, capacity: float, level: float) -> float:
    """Return where the needed GPUs are `capacity`, from a `level` where they are more: Newton's method.

    What is needed falls with the level and is convex, so every step ends short of the root.
    """
    for _ in range(100):
        x = left / _room_s(age, left, by, level)
        over = float(need @ x) - capacity
        if over <= 1e-12 * capacity:
            break
        level += over / float(need @ (x * x * by / left))
    return level


def _room_s(age: Floats, left: Floats, by: Floats, level: float) -> Floats:
    """Return how long what is left may take at a level; never less than it takes with all of a share."""
    room = level * by - age
    return np.where(room > 0, room, left)  # a rest that is nothing beside the age is lost in rounding
