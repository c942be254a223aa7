"""SRTF and SRSF as Muri's public simulator has them: all jobs are placed anew at every decision.

Tiresias as Muri's public simulator has it: GPUs are counted, wherever they are.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.policies.scheduling.placement import FreeGpus
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.ranked import WaitingJobs, place_by_rank
from controller.policies.scheduling.tiresias import Tiresias


class TiresiasReplica(Tiresias):
    """Discretised 2D-LAS on any GPUs that are free."""

    def _take(self, slots: FreeGpus, gpus: int) -> tuple[int, ...] | None:
        return slots.allocate_scattered(gpus)


class Repacked:
    """Run the jobs of lowest rank on the emptied cluster; `rank(job, now_s)` holds while a job waits."""

    def __init__(self, name: str, rank: Callable[[JobState, float], float]) -> None:
        self.name = name
        self._rank = rank
        self._waiting = WaitingJobs()
        self._running: dict[int, JobState] = {}

    def decide(self, view: View) -> Decision:
        """Return the jobs of lowest rank, as many as fit."""
        rank, now_s = self._rank, view.now_s
        for job in view.finished:
            if self._running.pop(job.order, None) is None:
                self._waiting.discard(job)  # it came to its end while it was being stopped
        for job in view.arrived:
            self._waiting.add(job, rank(job, now_s))
        held = [(rank(job, now_s), order, job) for order, job in self._running.items()]
        placed = place_by_rank(self._waiting, held, FreeGpus(view.cluster))
        self._running = {job.order: job for job, _ in placed}
        for its_rank, order, job in held:
            if order not in self._running:
                self._waiting.add(job, its_rank)
        return Decision([Group((job,), place) for job, place in placed])


def srtf() -> Repacked:
    """Return shortest remaining time first."""
    return Repacked("srtf", lambda job, now_s: job.remaining_s(now_s))


def srsf() -> Repacked:
    """Return shortest remaining service (time x GPUs) first."""
    return Repacked("srsf", lambda job, now_s: job.remaining_s(now_s) * job.spec.gpus)
