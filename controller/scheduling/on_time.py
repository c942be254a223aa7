"""Deadlines as late as they allow: until then the shortest jobs go first; ours.

Earliest deadline first runs jobs with deadlines at once, and lets short jobs without one wait, although most
deadlines leave time. Shortest remaining service first is best for the mean, but misses deadlines. Here a job
with a deadline goes by service, as all others, until it is urgent; urgent jobs go first, by deadline. The
jobs with deadlines up to that of job i become urgent together when

- they need more than `FULL` of all GPU-seconds until then, as they would in a queue of their own, or
- job i alone needs more than 1 / (1 + `MARGIN`) of the time until then.

What jobs need is their remaining time times 1 + c: jobs contend for links and switch memory. A job beside
others on a fraction f of the GPUs needs 1 + c · f times its time alone, and c is learnt from running jobs,
whose speeds are known. A job that would be late even alone is as one without a deadline: GPUs taken from
others for it would be wasted. No job is granted slots: all share them, so none idles while somebody could use
it. O(n log n) for n jobs.
"""

from __future__ import annotations

import math

from controller.scheduling.deadlines import due_s
from controller.scheduling.policy import Decision, JobState, View
from controller.scheduling.queue import Rank
from controller.scheduling.ranked import Moves, Ranked
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


class OnTime:
    """By service, but urgent deadlines first. `learns=False` takes c for zero: an ablation."""

    name = "on-time"

    def __init__(self, told: Told = TRUTH, *, learns: bool = True) -> None:
        self._told = told
        self._learns = learns
        self.slower = FIRST if learns else 0.0
        """What is believed of c."""
        self._urgent: set[int] = set()  # by order of arrival
        self._ranked = Ranked(self.name, self._rank, moves=Moves.PREEMPT)

    def decide(self, view: View) -> Decision:
        """Return the jobs of lowest rank, and ask to be woken when the next waiting ones become urgent."""
        if self._learns:
            self._learn(view)
        self._urgent, next_s = self._urgencies(view)
        self._ranked.rerank()
        decision = self._ranked.decide(view)
        waits = sum(len(group.jobs) for group in decision.groups) < len(view.jobs)
        decision.wake_s = next_s if waits and next_s < math.inf else None
        return decision

    def _learn(self, view: View) -> None:
        running = [job for group in view.groups for job in group.jobs]
        used = sum(job.spec.gpus for job in running)
        for job in running:
            others = (used - job.spec.gpus) / view.cluster.gpus
            if others >= LEAST and math.isfinite(job.iteration_s):
                seen = max(job.iteration_s / job.alone_s - 1.0, 0.0) / others
                self.slower += LATEST / len(running) * (seen - self.slower)

    def _urgencies(self, view: View) -> tuple[set[int], float]:
        """Return the urgent jobs, and when the next become urgent if nothing happens until then."""
        now_s = view.now_s
        left = {
            job.order: self._left_s(job, now_s)
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

    def _rank(self, job: JobState, now_s: float) -> Rank:
        if job.order in self._urgent:
            return 0, due_s(job)
        return 1, self._told.remaining_s(job, now_s) * job.spec.gpus

    def _left_s(self, job: JobState, now_s: float) -> float:
        start_s = 0.0 if job.group is not None else job.spec.restart_s
        return self._told.remaining_s(job, now_s) + start_s
