"""Simulators whose time goes in steps: a job has ended when the step of its end is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from controller.policies.scheduling.policy import Submission
from controller.simulator.engine import PolicyRun, SimulationResult
from controller.vocabulary import Cluster


@dataclass(frozen=True, slots=True)
class SteppedRun(PolicyRun):
    """As `PolicyRun`; `interval_s`, which must be positive, is the step.

    `prepare` returns the jobs to run, made from the given ones.
    """

    prepare: Callable[[Sequence[Submission]], Sequence[Submission]] = list

    def run(
        self,
        specs: Sequence[Submission],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> SimulationResult:
        """Simulate `specs` on `cluster`; jobs end with their steps."""
        prepared = self.prepare(specs)
        result = PolicyRun.run(self, prepared, cluster, detail=detail, verify=verify, progress=progress)
        jobs = [replace(job, finish_s=_end_of_step(job.finish_s, self.interval_s)) for job in result.jobs]
        return replace(result, jobs=jobs)


def _end_of_step(time_s: float, step_s: float) -> float:
    return math.ceil(time_s / step_s - 1e-6) * step_s
