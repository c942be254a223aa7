"""`joint` without each of its parts, or with another order: ablations of the page `which-policy`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from controller.policies.family import Setup
from controller.policies.joint import Joint
from controller.policies.scheduling.deadlines import FULL, Urgency, due_s
from controller.policies.scheduling.policy import JobState, View
from controller.policies.scheduling.queue import Rank
from controller.policies.scheduling.speed import Exclusive
from controller.vocabulary import Job, Topology

PROMISED: Final[set[str]] = set()
"""Names of the jobs that the last `admitting` has promised their deadlines."""


class _Equal(Joint):
    """All jobs are equal: they choose places in the order of their arrival."""

    def rank(self, job: JobState, now_s: float) -> Rank:
        return 0, float(job.order)


class _Inverted(Joint):
    """Who has most time chooses first."""

    def rank(self, job: JobState, now_s: float) -> Rank:
        urgent, key = super().rank(job, now_s)
        return -urgent, -key


class _Eager(Joint):
    """Deadlines go first at once, not as late as they allow."""

    def rank(self, job: JobState, now_s: float) -> Rank:
        urgent, key = super().rank(job, now_s)
        late = now_s + self.urgency.left_s(job, now_s) > due_s(job)
        return (urgent, key) if job.spec.deadline_s is None or late else (0, due_s(job))


class _OneTree(Joint):
    """Jobs get shortest paths."""

    def trees(self, topology: Topology, job: Job) -> Sequence[Job]:
        return [job]


class _Fastest(Joint):
    """Jobs are taken to run alone as on the fastest links, with sums."""

    def alone_s(self, job: JobState) -> float:
        return job.alone_s


class _Admission(Urgency):
    """A deadline counts once it is promised: when all promised jobs due by then have time for it, too.

    A promise is not taken back. Jobs without one are as those without a deadline, and are looked at again
    whenever something happens.
    """

    def update(self, view: View) -> float:
        """Promise what there is time for; find the urgent jobs among the promised ones."""
        now_s = view.now_s
        waiting = [job for job in view.jobs.values() if job.spec.deadline_s is not None]
        promised = [job for job in waiting if job.spec.name in PROMISED]
        for job in waiting:
            if job not in promised and self._fit([*promised, job], job, view.cluster.gpus, now_s):
                promised.append(job)
                PROMISED.add(job.spec.name)
        without = {job.spec.name for job in waiting} - PROMISED
        jobs = {name: job for name, job in view.jobs.items() if name not in without}
        return super().update(dataclasses.replace(view, jobs=jobs))

    def _fit(self, jobs: Sequence[JobState], fresh: JobState, gpus: int, now_s: float) -> bool:
        """Return whether a job can meet its deadline alone, and all that are due no earlier can still."""
        if now_s + self.left_s(fresh, now_s) > due_s(fresh):
            return False
        demand_s = 0.0
        for job in sorted(jobs, key=due_s):
            demand_s += job.spec.gpus * self.left_s(job, now_s) * (1.0 + self.slower)
            if due_s(job) >= due_s(fresh) and now_s + demand_s / (FULL * gpus) > due_s(job):
                return False
        return True


class _Admitting(Joint):
    """Promises deadlines, and refuses those that there is no time for."""

    def __init__(self) -> None:
        super().__init__()
        self.urgency = _Admission(alone_s=self.alone_s)


class _Staying(Joint):
    """Jobs stay where they have started until they are stopped."""

    moves = False


def _setup(policy: Joint) -> Setup:
    return Setup(policy, Exclusive(), places=True)


def equal() -> Setup:
    """Return `joint` in the order of arrival."""
    return _setup(_Equal())


def inverted() -> Setup:
    """Return `joint` in the opposite order."""
    return _setup(_Inverted())


def eager() -> Setup:
    """Return `joint` with all deadlines first."""
    return _setup(_Eager())


def one_tree() -> Setup:
    """Return `joint` without other trees than shortest paths."""
    return _setup(_OneTree())


def fastest() -> Setup:
    """Return `joint` without knowing how fast this cluster lets a job be alone."""
    return _setup(_Fastest())


def staying() -> Setup:
    """Return `joint` without moves of running jobs."""
    return _setup(_Staying())


def admitting() -> Setup:
    """Return `joint` with admission."""
    PROMISED.clear()
    return _setup(_Admitting())


def unlearned() -> Setup:
    """Return `joint` without learning how jobs slow each other down."""
    return _setup(Joint(learns=False))
