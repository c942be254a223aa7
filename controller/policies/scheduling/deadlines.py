"""Policies for jobs with deadlines (`Submission.deadline_s`)."""

from __future__ import annotations

import math
from functools import partial

from controller.policies.scheduling.policy import Decision, JobState, View
from controller.policies.scheduling.queue import Rank
from controller.policies.scheduling.ranked import Moves, Ranked
from controller.policies.scheduling.told import TRUTH, Told

MARGIN = 0.25
"""A job is urgent when what it may still wait is no longer than this part of what it still runs."""


def due_s(job: JobState) -> float:
    """Return the time of the deadline, on the clock of `arrival_s`; infinite without one."""
    return math.inf if job.spec.deadline_s is None else job.spec.arrival_s + job.spec.deadline_s


def edf(told: Told = TRUTH) -> Ranked:
    """Return earliest deadline first; jobs without one by shortest remaining service, after the others."""
    return Ranked("edf", partial(_earliest, told), moves=Moves.PREEMPT)


def _earliest(told: Told, job: JobState, now_s: float) -> Rank:
    return due_s(job), told.remaining_s(job, now_s) * job.spec.gpus


class Slack:
    """Shortest remaining service first, except that jobs about to miss their deadlines come before; ours.

    A job with a deadline waits like any other while it has time. When its slack (the time until the deadline,
    less its remaining run time and a start) falls below `margin` of its remaining run time, it is urgent, and
    urgent jobs run first, by deadline. A job that can no longer meet its deadline counts as one without:
    resources taken from others for it would be wasted. Without `forgive`, it stays urgent; that is an
    ablation.
    """

    def __init__(self, told: Told = TRUTH, *, margin: float = MARGIN, forgive: bool = True) -> None:
        self.name = "slack"
        self._told = told
        self._margin = margin
        self._forgive = forgive
        self._urgent: set[int] = set()  # by order of arrival; once urgent, a job stays so
        self._ranked = Ranked("slack", self._rank, moves=Moves.PREEMPT)

    def decide(self, view: View) -> Decision:
        """Return the jobs of lowest rank, and ask to be woken when the next waiting job becomes urgent."""
        now_s = view.now_s
        for job in view.finished:
            self._urgent.discard(job.order)
        with_deadline = [job for job in view.jobs.values() if job.spec.deadline_s is not None]
        for job in with_deadline:
            self._note(job, now_s)
        self._ranked.rerank()
        decision = self._ranked.decide(view)
        running = {job.order for group in decision.groups for job in group.jobs}
        times = [self._urgent_at_s(job, now_s) for job in with_deadline if job.order not in running]
        decision.wake_s = min((time_s for time_s in times if time_s > now_s), default=None)
        return decision

    def _rank(self, job: JobState, now_s: float) -> Rank:
        if job.order in self._urgent:
            return 0, due_s(job)
        return 1, self._told.remaining_s(job, now_s) * job.spec.gpus

    def _left_s(self, job: JobState, now_s: float) -> float:
        start_s = 0.0 if job.group is not None else job.spec.restart_s
        return self._told.remaining_s(job, now_s) + start_s

    def _note(self, job: JobState, now_s: float) -> None:
        left_s = self._left_s(job, now_s)
        slack_s = due_s(job) - now_s - left_s
        if slack_s < -1e-6 * max(1.0, now_s) and self._forgive:
            self._urgent.discard(job.order)
        elif slack_s <= self._margin * left_s + 1e-6 * max(1.0, now_s):
            self._urgent.add(job.order)

    def _urgent_at_s(self, job: JobState, now_s: float) -> float:
        """Return when it becomes urgent if it goes on waiting, or gives its deadline up."""
        left_s = self._left_s(job, now_s)
        if job.order in self._urgent:
            return due_s(job) - left_s + 1e-5 * max(1.0, now_s)
        return due_s(job) - (1 + self._margin) * left_s
