"""Two-dimensional Gittins index (Tiresias, NSDI'19, section 3.3): jobs that are likely to end soon go first.

With S, the service (time x GPUs) of a job, distributed as observed so far, a job that has attained service a
has the index

    G(a) = sup over d > 0 of  P(S - a <= d | S > a) / E[min(S - a, d) | S > a]

the best ratio of the probability that it ends to the service spent until then. Only the distribution is
known. It is learned while the policy runs, from jobs that have ended and, because the others' service is only
known to exceed their attained service, by Kaplan and Meier's estimator; or it is given as `sizes`.

The index is discretised, as attained service is in Tiresias: it is constant between two of the `LEVELS`
limits, so that jobs do not preempt each other all the time. Within a level it is first come, first served.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.policies.scheduling.policy import Decision, JobState, View
from controller.policies.scheduling.ranked import Moves, Ranked

LEVELS = tuple(60.0 * 2.0 ** (step / 2) for step in range(48))
"""Attained service, GPU-seconds, at which the index changes: from a minute to 37 years, two to a doubling."""

GROWTH = 1.1
"""The distribution is learnt anew when so many times as many jobs have ended."""

Floats = NDArray[np.float64]


class Gittins:
    """The job with the highest index first; preempts. `sizes`: services of earlier jobs, GPU-seconds."""

    name = "gittins"

    def __init__(self, sizes: Sequence[float] = ()) -> None:
        self._ended = list(sizes)
        self._learns = not sizes
        self._next_lesson = 1.0
        self._index = [0.0] * (len(LEVELS) + 1)
        if sizes:
            self._index = levels_index(*distribution(sizes, ()))
        self._ranked = Ranked(self.name, self._rank, moves=Moves.PREEMPT)

    def decide(self, view: View) -> Decision:
        """Return the jobs of the highest index, as many as fit."""
        if self._learns:
            ended = [job for job in view.finished if job.finish_s is not None]  # not those of `View.kept`
            self._ended += [job.attained_s(view.now_s) * job.spec.gpus for job in ended]
            if len(self._ended) >= self._next_lesson:
                going = [job.attained_s(view.now_s) * job.spec.gpus for job in view.jobs.values()]
                self._index = levels_index(*distribution(self._ended, going))
                self._next_lesson = len(self._ended) * GROWTH
                self._ranked.rerank()
        groups = self._ranked.decide(view).groups
        running = [job for group in groups for job in group.jobs]
        waits = len(running) < len(view.jobs)
        return Decision(groups, self._wake_s(running, view.now_s) if waits else None)

    def _rank(self, job: JobState, now_s: float) -> tuple[float, int]:
        return self._rank_at(bisect_right(LEVELS, job.attained_s(now_s) * job.spec.gpus))

    def _rank_at(self, level: int) -> tuple[float, int]:
        return (-self._index[level], level)

    def _wake_s(self, running: Sequence[JobState], now_s: float) -> float | None:
        """Return when the first running job reaches a level that ranks behind one of the waiting jobs.

        A job that only reaches the same level continues: preempting it for an earlier one would cost a
        restart.
        """
        best_waiting = self._ranked.best_waiting()
        first_s = math.inf
        for job in running:
            attained_s = job.attained_s(now_s) * job.spec.gpus
            for level in range(bisect_right(LEVELS, attained_s), len(LEVELS)):
                if self._rank_at(level + 1) > best_waiting:
                    first_s = min(first_s, now_s + (LEVELS[level] - attained_s) / job.spec.gpus)
                    break
        if first_s == math.inf:
            return None
        # a little later, so that rounding does not leave the job just below the limit, to be asked again
        return max(first_s + 1e-6, math.nextafter(first_s, math.inf))


def distribution(ended: Sequence[float], going: Sequence[float]) -> tuple[Floats, Floats]:
    """Return sizes, ascending, and their probabilities: Kaplan and Meier's estimate.

    `ended` are sizes; sizes of jobs in `going` are only known to be larger than the given ones. Probabilities
    sum to less than 1 if the largest is one of the latter: the rest is the probability of larger sizes.

    >>> distribution([1.0, 3.0, 4.0], [2.0])[1].tolist()
    [0.25, 0.375, 0.375]
    """
    sizes, deaths = np.unique(np.array(ended, dtype=np.float64), return_counts=True)
    everyone = np.sort(np.concatenate([ended, going]))
    at_risk = len(everyone) - np.searchsorted(everyone, sizes, side="left")
    survival = np.cumprod(1.0 - deaths / at_risk)
    return sizes, -np.diff(survival, prepend=1.0)


def levels_index(sizes: Floats, shares: Floats) -> list[float]:
    """Return the index at the lower end of each level, for the result of `distribution`.

    0 where no size beyond is known.
    """
    return [gittins_index(sizes, shares, attained) for attained in (0.0, *LEVELS)]


def gittins_index(sizes: Floats, shares: Floats, attained: float) -> float:
    """Return the index of a job with this attained service; 0 if no larger size is known.

    The supremum is reached where d ends at a size.

    >>> gittins_index(np.array([1.0, 10.0]), np.array([0.5, 0.5]), 0.0)
    0.5
    """
    beyond = sizes > attained
    if not beyond.any():
        return 0.0
    need, share = sizes[beyond] - attained, shares[beyond]
    ends = np.cumsum(share)
    survives = 1.0 - shares[~beyond].sum()
    spent = np.cumsum(share * need) + np.maximum(survives - ends, 0.0) * need
    return float((ends / spent).max())
