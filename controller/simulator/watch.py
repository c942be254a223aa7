"""Detect a simulation that makes no progress."""

from __future__ import annotations

import math
from collections.abc import Iterable

from controller.policies.scheduling.errors import Stuck
from controller.policies.scheduling.policy import JobState

DECISIONS = 2_000
"""Decisions in a row without an arrival or an end; the work of every second such row is looked at."""

LEAST_SPEED = 1e-3
"""Seconds of work per second that count as getting on: jobs that share GPUs run at a tenth of their speed."""

LEAST_PART = 1e-9
"""Part of all work that must be done meanwhile: else it would take 10¹² decisions."""


class Watch:
    """Counts decisions, and raises Stuck when none of them has an effect."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._asked = 0
        self._since_s = 0.0
        self._left_s = math.inf

    def asked(self, now_s: float, jobs: Iterable[JobState], *, moved: bool) -> None:
        """Record a decision; `moved`: a job has arrived or ended. Raises Stuck with policy, time and jobs."""
        self._asked = 0 if moved else self._asked + 1
        if not self._asked or self._asked % DECISIONS:  # so that it costs nothing where things happen
            return
        unfinished = list(jobs)
        left_s = math.fsum(job.remaining_s(now_s) for job in unfinished)
        work_s, elapsed_s = self._left_s - left_s, now_s - self._since_s
        second = self._asked > DECISIONS
        if second and unfinished and work_s <= max(LEAST_SPEED * elapsed_s, LEAST_PART * left_s):
            raise Stuck(
                f"{self._policy} makes no progress: asked {DECISIONS:,} times from {self._since_s:,.0f} s to"
                f" {now_s:,.0f} s, while {named(unfinished)}; they have {left_s:,.0f} s of work left."
                " Do starts cost more (restart_s) than the turns that jobs are given?"
            )
        self._since_s, self._left_s = now_s, left_s


def named(jobs: Iterable[JobState]) -> str:
    """Return the number of unfinished jobs, and the names of the first."""
    names = [job.spec.name for job in jobs]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{len(names)} jobs wait: {shown}"
