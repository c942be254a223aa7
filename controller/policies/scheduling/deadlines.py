"""Policies for jobs with deadlines (`Submission.deadline_s`): `edf` and, ours, `OnTime`.

Earliest deadline first (`edf`) runs jobs with deadlines at once. Short jobs without a deadline have to wait,
although most deadlines leave time for them. Shortest remaining service first minimises the mean completion
time, but misses deadlines. `OnTime` ranks a job with a deadline by service, like all other jobs, until its
deadline is urgent (`DeadlineUrgency`). Jobs with urgent deadlines go first, earliest deadline first. No job
is granted slots: all jobs share the slots, so no slot is idle while a job could use it. O(n log n) for n
jobs.

The available time of job i is the time until its deadline, less the time of `STOPS` starts. Job i's deadline
is urgent when job i needs more than 1 / (1 + `MARGIN`) of its available time. The deadlines of job i and of
all jobs with earlier deadlines are urgent when these jobs together need more than `FULL` of all GPU-seconds
in job i's available time.

The time that a job needs is its remaining time alone times 1 + c, because jobs contend for links and switch
memory. c is learnt from the speeds of running jobs: a job takes 1 + c · f times as long as alone if other
jobs use a fraction f of the GPUs.

Reported durations are trusted only as far as they were right for ended jobs. Their error e is a logarithm
(`scheduling.ranked.EstimateError`); it is larger while few jobs have ended. A job may need exp(e) times as
long as reported, so its deadline is urgent earlier. A deadline is ignored if the job would miss it even alone
and even with exp(-`SURE` · e) of its remaining time: GPUs taken from other jobs for it would be wasted.
Before any job has ended, all deadlines are urgent until they have passed. So jobs run earliest deadline first
at the beginning, if reported durations are wrong, or if starts take long relative to jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from controller.policies.scheduling.policy import Decision, JobState, View
from controller.policies.scheduling.ranked import (
    EXACT,
    DurationEstimates,
    EstimateError,
    Preemption,
    Rank,
    RankedPolicy,
)

FULL = 0.5
"""Fraction of all GPU-seconds until a deadline. If the jobs with deadlines until then need more, their
deadlines are urgent."""
MARGIN = 0.5
"""A deadline is urgent when the job's slack is at most this fraction of the job's remaining run time."""
STOPS = 8
"""Number of restarts to reserve time for before a deadline: a job may be preempted until its deadline is
urgent."""
SURE = 2.0
"""A deadline is ignored if the job would miss it even if its remaining time were only exp(-`SURE` · e) times
the reported one; e is the error of reported durations."""
LUCK = 1.2816
"""The 90th percentile of the standard normal distribution, for the upper 90 % confidence limit of the error
of reported durations. The reports of a few ended jobs may have been right by luck."""
UNSEEN = 5.0
"""Error of reported durations (a logarithm) assumed before any job has ended, so that no report is trusted;
also the maximum error assumed."""
FIRST = 0.5
"""Assumed value of c (see the module's docstring) before jobs have run beside each other."""
LATEST = 0.2
"""Weight of running jobs' latest speeds in the moving average of c (see the module's docstring)."""
LEAST = 0.05
"""Minimum fraction of the GPUs that other jobs must use before their effect on a job's speed is learnt."""

AloneS = Callable[[JobState], float]


def seconds_alone(job: JobState) -> float:
    """Return the time of an iteration of a job that runs alone, in seconds, by the speed model."""
    return job.alone_s


class DeadlineUrgency:
    """The jobs of one run whose deadlines are urgent, and the ranks of all jobs.

    Args:
        estimates: The jobs' reported durations.
        alone_s: Function that returns the seconds per iteration of a job that runs alone.
        learns: Whether to learn how much jobs slow each other down, c in the module's docstring. False: c is
            zero, an ablation.
    """

    def __init__(
        self, estimates: DurationEstimates = EXACT, *, alone_s: AloneS = seconds_alone, learns: bool = True
    ) -> None:
        self._estimates = estimates
        self._alone_s = alone_s
        self._learns = learns
        self.slower = FIRST if learns else 0.0
        """The estimate of c."""
        self._spread = EstimateError()
        self._urgent: set[int] = set()  # by order of arrival

    def update(self, view: View) -> float:
        """Update the urgent jobs; return the time when the next job becomes urgent; infinite: no job will."""
        if self._learns:
            self._learn(view)
        for job in view.arrived:
            self._spread.expect(job, job.worked_s + self._works_s(job, view.now_s))
        for job in view.finished:
            self._spread.compare(job, job.worked_s if job.completed else 0.0)
        self._urgent, next_s = self._urgencies(view)
        return next_s

    def rank(self, job: JobState, now_s: float) -> Rank:
        """Return the rank of a job: urgent jobs come first, by deadline; other jobs by remaining service."""
        if job.order in self._urgent:
            return 0, due_s(job)
        return 1, self._works_s(job, now_s) * job.spec.gpus

    def left_s(self, job: JobState, now_s: float) -> float:
        """Return the remaining time of a job alone, in seconds; for a waiting job, including a start."""
        start_s = 0.0 if job.group is not None else job.spec.restart_s
        return self._works_s(job, now_s) + start_s

    @property
    def error(self) -> float:
        """The likely error of reported durations, as a logarithm, estimated from ended jobs."""
        if not self._spread.count:
            return UNSEEN
        # a chi-square quantile by Wilson and Hilferty (1931): 13.8 for one job, 2.3 for three, 1.4 for ten
        off = 2.0 / (9.0 * self._spread.count)
        return min(self._spread.around_zero / math.pow(1.0 - off - LUCK * math.sqrt(off), 1.5), UNSEEN)

    def _works_s(self, job: JobState, now_s: float) -> float:
        return self._estimates.remaining_s(job, now_s) * (self._alone_s(job) / job.alone_s)

    def _learn(self, view: View) -> None:
        running = [job for group in view.groups for job in group.jobs]
        used = sum(job.spec.gpus for job in running)
        for job in running:
            others = (used - job.spec.gpus) / view.cluster.gpus
            if others >= LEAST and math.isfinite(job.iteration_s):
                slowdown = max(job.iteration_s / self._alone_s(job) - 1.0, 0.0) / others
                self.slower += LATEST / len(running) * (slowdown - self.slower)

    def _urgencies(self, view: View) -> tuple[set[int], float]:
        now_s = view.now_s
        left = {
            job.order: self.left_s(job, now_s)
            for job in view.jobs.values()
            if job.spec.deadline_s is not None
        }
        due = [job for job in view.jobs.values() if job.order in left]
        least = math.exp(-SURE * self.error)
        due = [job for job in due if now_s + least * left[job.order] <= due_s(job) + 1e-6 * max(1.0, now_s)]
        due.sort(key=lambda job: (due_s(job), job.order))
        urgent: set[int] = set()
        soon = now_s + 1e-5 * max(1.0, now_s)
        slower = (1.0 + self.slower) * math.exp(self.error)
        next_s, demand_s = math.inf, 0.0
        for number, job in enumerate(due):
            needs_s = left[job.order] * slower
            demand_s += job.spec.gpus * needs_s
            last_s = due_s(job) - STOPS * job.spec.restart_s
            together_s = last_s - demand_s / (FULL * view.cluster.gpus)
            alone_s = last_s - (1.0 + MARGIN) * needs_s
            if together_s <= soon:
                urgent.update(each.order for each in due[: number + 1])
            elif alone_s <= soon:
                urgent.add(job.order)
            if job.order not in urgent:
                next_s = min(next_s, together_s, alone_s)
        return urgent, next_s


def due_s(job: JobState) -> float:
    """Return the time of a job's deadline, in seconds on the core's clock; infinite: it has none."""
    return math.inf if job.spec.deadline_s is None else job.spec.arrival_s + job.spec.deadline_s


def edf(estimates: DurationEstimates = EXACT) -> RankedPolicy:
    """Return the policy earliest deadline first.

    Jobs without a deadline come last, shortest remaining service first.
    """
    return RankedPolicy("edf", partial(_earliest, estimates), moves=Preemption.PREEMPT)


def _earliest(estimates: DurationEstimates, job: JobState, now_s: float) -> Rank:
    return due_s(job), estimates.remaining_s(job, now_s) * job.spec.gpus


class OnTime:
    """Policy that runs jobs with urgent deadlines first, then other jobs, shortest remaining service first.

    Urgent jobs go earliest deadline first. `learns` is passed to `DeadlineUrgency`; False is an ablation.
    """

    name = "on-time"

    def __init__(self, estimates: DurationEstimates = EXACT, *, learns: bool = True) -> None:
        self.urgency = DeadlineUrgency(estimates, learns=learns)
        self._ranked = RankedPolicy(self.name, self.urgency.rank, moves=Preemption.PREEMPT)

    def decide(self, view: View) -> Decision:
        """Return the jobs of lowest rank that fit, and the time when the next deadline becomes urgent."""
        next_s = self.urgency.update(view)
        decision = self._chosen(view)
        waits = sum(len(group.jobs) for group in decision.groups) < len(view.jobs)
        decision.wake_s = next_s if waits and next_s < math.inf else None
        return decision

    def _chosen(self, view: View) -> Decision:
        """Return the groups of the jobs of lowest rank that fit."""
        self._ranked.rerank()
        return self._ranked.decide(view)
