"""Order of jobs: maximum sharing efficiency first.

The patent names the inputs of a job's priority: the GPUs g that it holds, the jobs c beside it, and how
often it was preempted; its formula is lost. This one is ours. A job is charged for the part of the cluster
that it takes from others: ``1 / (1 + c)`` of a GPU that it shares with c jobs. Counted on each GPU
separately, this is ``g / (1 + c)`` if all its GPUs are shared equally, and also right if only some are:

    A_j(t) = ∫ Σ_{its GPUs} 1 / (1 + c) dt        P_j(t) = A_j(t) / (1 + ckpt_j)

The lowest P comes first. So jobs with little service come before jobs with much (durations need not be
known); jobs that share are charged less, and keep their place longer; and jobs that were preempted often are
not soon preempted again. P is divided into levels that widen by a factor, because jobs with nearly the same P
would preempt each other in turn: within a level there are no preemptions, and the sharing that gains most
comes first (`policy`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.policy import JobState
from controller.policies.scheduling.sharing.layout import Layout


class Ledger:
    """Charges of jobs so far, in GPU-seconds.

    Args:
        sharing: Sharing makes a job's service cheaper.
        aging: Preemptions count.
        first: Upper end of the first level, in GPU-seconds.
        factor: Ratio of the upper ends of consecutive levels.

    Raises BadSpec for levels that do not widen.
    """

    def __init__(
        self, *, sharing: bool = True, aging: bool = True, first: float = 3600.0, factor: float = 4.0
    ) -> None:
        if not (first > 0 and math.isfinite(first) and factor > 1):
            raise BadSpec(
                f"levels from {first} GPU s on, each {factor} times as far; more than 0 and 1 is needed"
            )
        self._sharing = sharing
        self._aging = aging
        self._first = first
        self._factor = factor
        self._charged: dict[int, float] = {}
        self._until_s = 0.0

    def open(self, jobs: Iterable[JobState]) -> None:
        """Start new jobs at a charge of 0."""
        for job in jobs:
            self._charged[job.order] = 0.0

    def close(self, job: JobState) -> None:
        """Forget a job."""
        del self._charged[job.order]

    def charge(self, layout: Layout, now_s: float) -> None:
        """Charge all jobs of `layout`, which must have been in effect since the last call."""
        elapsed_s = now_s - self._until_s
        self._until_s = now_s
        if elapsed_s > 0:
            for order, job in layout.jobs.items():
                held = layout.share(job) if self._sharing else job.spec.gpus
                self._charged[order] += elapsed_s * held

    def priority(self, job: JobState) -> float:
        """Return P; the lowest comes first."""
        charged = self._charged[job.order]
        return charged / (1 + job.preemptions) if self._aging else charged

    def level(self, job: JobState) -> int:
        """Return the level of P; the lowest comes first."""
        part = self.priority(job) / self._first
        return 0 if part < 1.0 else 1 + int(math.log(part, self._factor))
