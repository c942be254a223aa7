"""Tiresias with discretised two-dimensional least attained service (NSDI'19).

A job's attained service (time x GPUs) determines the job's queue. Each queue has a limit of service. A job
that reaches the limit of its queue moves to the end of the next queue; no job moves back. Queues are served
in order. Within a queue, running jobs precede waiting jobs, and both are served first come, first served.
The default limits, in GPU-seconds, are the limits of the Tiresias simulator in Muri's repository.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.policies.scheduling.placement import FreeGpus
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.ranked import settled_on

LIMITS = (3250.0, 7200.0)


class Tiresias:
    """Policy of discretised two-dimensional least attained service, with consolidated placement."""

    name = "tiresias"

    def __init__(self, limits: Sequence[float] = LIMITS) -> None:
        self._limits = tuple(limits)
        self._queues: list[list[JobState]] = [[] for _ in range(len(limits) + 1)]
        self._level: dict[int, int] = {}  # queue of each running job, by order of arrival
        self._groups: dict[int, Group] = {}
        self._slots: FreeGpus | None = None

    def decide(self, view: View) -> Decision:
        """Return the jobs at the heads of the queues, until the GPUs of the cluster are used."""
        slots = self._slots
        if slots is None or slots.cluster is not view.cluster:
            slots, stopped = settled_on(view.cluster, self._groups)
            self._slots = slots
            for job in stopped:  # they stay in their queues
                del self._level[job.order]
        for job in view.finished:
            group = self._groups.pop(job.order, None)
            if group is not None:
                slots.release(group.gpus)
                self._queues[self._level.pop(job.order)].remove(job)
            else:  # it ended while it was being stopped
                self._queues = [[other for other in queue if other is not job] for queue in self._queues]
        self._queues[0] += view.arrived
        self._sink(view.now_s)
        free = view.cluster.gpus
        chosen: list[tuple[int, JobState]] = []
        for level, queue in enumerate(self._queues):
            running: list[JobState] = []
            waiting: list[JobState] = []
            for job in queue:
                if free >= job.spec.gpus:
                    free -= job.spec.gpus
                    chosen.append((level, job))
                    running.append(job)
                else:
                    waiting.append(job)
            self._queues[level] = running + waiting
        self._place(chosen, slots)
        return Decision(
            [self._groups[job.order] for _, job in self._in_order(chosen)], self._wake_s(view.now_s)
        )

    def _in_order(self, chosen: list[tuple[int, JobState]]) -> list[tuple[int, JobState]]:
        return [(level, job) for level, job in chosen if job.order in self._groups]

    def _sink(self, now_s: float) -> None:
        """Move each job whose service has reached the limit of its queue into the next queue."""
        for order in sorted(self._groups):
            job = self._groups[order].jobs[0]
            level = self._level[order]
            if level < len(self._limits) and job.attained_s(now_s) * job.spec.gpus >= self._limits[level]:
                self._queues[level].remove(job)
                self._queues[level + 1].append(job)
                self._level[order] = level + 1

    def _place(self, chosen: list[tuple[int, JobState]], slots: FreeGpus) -> None:
        keep = {job.order for _, job in chosen}
        for order in [order for order in self._groups if order not in keep]:
            slots.release(self._groups.pop(order).gpus)
            del self._level[order]
        for level, job in chosen:
            if job.order in self._groups:
                continue
            gpus = self._take(slots, job.spec.gpus)
            if gpus is not None:
                self._groups[job.order] = Group((job,), gpus, reason=f"queue {level}")
                self._level[job.order] = level

    def _take(self, slots: FreeGpus, gpus: int) -> tuple[int, ...] | None:
        """Take GPUs for a job; the replica of Muri's Tiresias takes others."""
        return slots.allocate(gpus)

    def _wake_s(self, now_s: float) -> float | None:
        """Return the time when the next running job reaches its queue's limit; None: no job will."""
        first_s = math.inf
        for order, group in self._groups.items():
            level = self._level[order]
            if level < len(self._limits):
                job = group.jobs[0]
                share_s = math.ceil(self._limits[level] / job.spec.gpus) - job.attained_s(now_s) + now_s
                first_s = min(first_s, share_s)
        if first_s == math.inf:
            return None
        return first_s if first_s > now_s else math.nextafter(now_s, math.inf)
