"""Which deadlines are urgent now, and which are promised; ours.

The jobs with deadlines up to that of job i become urgent together when

- they need more than `FULL` of all GPU-seconds until then, as they would in a queue of their own, or
- job i alone needs more than 1 / (1 + `MARGIN`) of the time until then.

What jobs need is their remaining time times 1 + c: jobs contend for links and switch memory. A job beside
others on a fraction f of the GPUs needs 1 + c · f times its time alone, and c is learnt from running jobs,
whose speeds are known. A job that would be late even alone is as one without a deadline: GPUs taken from
others for it would be wasted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from controller.scheduling.deadlines import due_s
from controller.scheduling.policy import JobState, View
from controller.scheduling.queue import Rank
from controller.scheduling.told import TRUTH, Told

FULL = 0.5
"""Part of all GPU-seconds until a deadline that jobs due by then may need before they are urgent."""
MARGIN = 0.5
"""A job is urgent when what it may still wait is no longer than this part of what it still runs."""
FIRST = 0.5
"""What c is taken to be before jobs have run beside each other."""
LATEST = 0.2
"""Weight of what running jobs show now against what they showed before."""
LEAST = 0.05
"""Fraction of the GPUs that others must have for a job's speed to say anything about c."""

AloneS = Callable[[JobState], float]


def by_itself(job: JobState) -> float:
    """Return the seconds per iteration of a job alone, as its speed model has them."""
    return job.alone_s


class Urgency:
    """The urgent jobs of one run, and the rank of all.

    Args:
        told: Durations as they are told.
        alone_s: Returns the seconds per iteration of a job that runs alone.
        learns: False: c is taken for zero; an ablation.
    """

    def __init__(self, told: Told = TRUTH, *, alone_s: AloneS = by_itself, learns: bool = True) -> None:
        self._told = told
        self._alone_s = alone_s
        self._learns = learns
        self.slower = FIRST if learns else 0.0
        """What is believed of c."""
        self._urgent: set[int] = set()  # by order of arrival

    def update(self, view: View) -> float:
        """Find the urgent jobs; return when the next become urgent if nothing happens until then."""
        if self._learns:
            self._learn(view)
        self._urgent, next_s = self._urgencies(view)
        return next_s

    def rank(self, job: JobState, now_s: float) -> Rank:
        """Return the rank of a job: urgent ones by deadline, the others by remaining service."""
        if job.order in self._urgent:
            return 0, due_s(job)
        return 1, self._works_s(job, now_s) * job.spec.gpus

    def left_s(self, job: JobState, now_s: float) -> float:
        """Return the seconds that a job would still take alone, a start included if it does not run."""
        start_s = 0.0 if job.group is not None else job.spec.restart_s
        return self._works_s(job, now_s) + start_s

    def _works_s(self, job: JobState, now_s: float) -> float:
        return self._told.remaining_s(job, now_s) * (self._alone_s(job) / job.alone_s)

    def _learn(self, view: View) -> None:
        running = [job for group in view.groups for job in group.jobs]
        used = sum(job.spec.gpus for job in running)
        for job in running:
            others = (used - job.spec.gpus) / view.cluster.gpus
            if others >= LEAST and math.isfinite(job.iteration_s):
                seen = max(job.iteration_s / self._alone_s(job) - 1.0, 0.0) / others
                self.slower += LATEST / len(running) * (seen - self.slower)

    def _urgencies(self, view: View) -> tuple[set[int], float]:
        now_s = view.now_s
        left = {
            job.order: self.left_s(job, now_s)
            for job in view.jobs.values()
            if job.spec.deadline_s is not None
        }
        due = [job for job in view.jobs.values() if job.order in left]
        due = [job for job in due if now_s + left[job.order] <= due_s(job) + 1e-6 * max(1.0, now_s)]
        due.sort(key=lambda job: (due_s(job), job.order))
        urgent: set[int] = set()
        soon = now_s + 1e-5 * max(1.0, now_s)
        next_s, demand_s = math.inf, 0.0
        for number, job in enumerate(due):
            needs_s = left[job.order] * (1.0 + self.slower)
            demand_s += job.spec.gpus * needs_s
            together_s = due_s(job) - demand_s / (FULL * view.cluster.gpus)
            alone_s = due_s(job) - (1.0 + MARGIN) * needs_s
            if together_s <= soon:
                urgent.update(each.order for each in due[: number + 1])
            elif alone_s <= soon:
                urgent.add(job.order)
            if job.order not in urgent:
                next_s = min(next_s, together_s, alone_s)
        return urgent, next_s
