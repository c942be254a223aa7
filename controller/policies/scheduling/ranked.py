"""Policies that only rank jobs: the jobs of lowest rank run, each on GPUs of its own.

Most baselines only choose a rank: FIFO ranks by arrival, SRTF by remaining time, LAS by attained service...
(`controller.policies.scheduling.baselines`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from controller.policies.scheduling.placement import FreeGpuCounts, FreeGpus
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.queue import Rank, WaitingJobs, choose_by_rank, keep_until_repaid
from controller.vocabulary import Cluster


class Preemption(Enum):
    """Treatment of a running job when other jobs start."""

    NEVER = "a running job runs to its end where it started"
    PREEMPT = "a running job may be stopped, and moved if large jobs do not fit otherwise"


class RankedPolicy:
    """Policy that runs the jobs of lowest rank.

    `rank(job, now_s)` must not change while a job waits, unless `rerank` is called. While jobs wait, the
    policy decides again after `quantum_s`, for ranks that change while jobs run; None: only when jobs arrive
    or end.
    """

    def __init__(
        self,
        name: str,
        rank: Callable[[JobState, float], Rank],
        *,
        moves: Preemption,
        backfill: bool = True,
        quantum_s: float | None = None,
    ) -> None:
        self.name = name
        self._rank = rank
        self._moves = moves
        self._backfill = backfill
        self._stale = False
        self._quantum_s = quantum_s
        self._waiting = WaitingJobs()
        self._slots: FreeGpus | None = None
        self._groups: dict[int, Group] = {}  # by the job's order of arrival

    def rerank(self) -> None:
        """Record that ranks of waiting jobs have changed; the next decision sorts the jobs, O(n log n)."""
        self._stale = True

    def decide(self, view: View) -> Decision:
        """Return a group for each job to run: the jobs of lowest rank that fit."""
        if self._quantum_s and (unchanged := keep_until_repaid(view)):
            return unchanged
        now_s = view.now_s
        slots = self._slots
        if slots is None or slots.cluster is not view.cluster:
            slots = self._slots = self._settled_on(view.cluster, now_s)
        for job in view.finished:
            group = self._groups.pop(job.order, None)
            if group is not None:
                slots.release(group.gpus)
            else:
                self._waiting.discard(job)  # it ended while it was being stopped
        if self._stale:
            self._stale = False
            waiting = list(self._waiting)
            self._waiting.clear()
            for job in waiting:
                self._waiting.add(job, self._rank(job, now_s))
        for job in view.arrived:
            self._waiting.add(job, self._rank(job, now_s))
        if len(self._waiting):
            if self._moves is Preemption.NEVER:
                self._fill(slots)
            else:
                self._choose(view.cluster, slots, now_s)
        wake_s = now_s + self._quantum_s if self._quantum_s and len(self._waiting) else None
        return Decision(list(self._groups.values()), wake_s)

    def _settled_on(self, cluster: Cluster, now_s: float) -> FreeGpus:
        """Return the free GPUs of `cluster`; stop jobs on unavailable GPUs. Stopped jobs wait again."""
        slots = FreeGpus(cluster)
        for order, group in list(self._groups.items()):
            if cluster.unavailable.isdisjoint(group.gpus):
                slots.reserve(group.gpus)
            else:
                del self._groups[order]
                self._waiting.add(group.jobs[0], self._rank(group.jobs[0], now_s))
        return slots

    def _fill(self, slots: FreeGpus) -> None:
        places: list[tuple[int, ...]] = []

        def fits(gpus: int) -> bool:
            place = slots.allocate(gpus)
            if place is not None:
                places.append(place)
            return place is not None

        chosen, started = choose_by_rank(self._waiting, (), fits, backfill=self._backfill)
        for job, place in zip(chosen, places, strict=True):
            self._groups[job.order] = Group((job,), place)
        for size, count in started.items():
            self._waiting.drop_first(size, count)

    def _choose(self, cluster: Cluster, slots: FreeGpus, now_s: float) -> None:
        rank = self._rank
        held = [(rank(job, now_s), job.order, job) for group in self._groups.values() for job in group.jobs]
        counts = FreeGpuCounts(cluster)
        chosen, started = choose_by_rank(self._waiting, held, counts.allocate, backfill=self._backfill)
        groups, self._slots = settle(chosen, self._groups, slots, cluster)
        for size, count in started.items():
            unplaced = [
                (entry[2], entry[0])
                for entry in self._waiting.bucket(size)[:count]
                if entry[2].order not in groups
            ]
            self._waiting.drop_first(size, count)
            for job, its_rank in unplaced:
                self._waiting.add(job, its_rank)
        for its_rank, order, job in held:
            if order not in groups:
                self._waiting.add(job, its_rank)
        self._groups = groups


def settle(
    chosen: list[JobState], groups: dict[int, Group], slots: FreeGpus, cluster: Cluster
) -> tuple[dict[int, Group], FreeGpus]:
    """Place the chosen jobs; running jobs keep their GPUs if possible.

    If new jobs do not fit otherwise, all jobs are placed again.

    Args:
        chosen: The jobs to run, in order of rank.
        groups: The running groups, each with one job, by the job's order of arrival.
        slots: The GPUs that `groups` leave free; the call changes this object.
        cluster: The servers.

    Returns:
        The groups, by the job's order of arrival, and the GPUs left free. A job that keeps its GPUs keeps its
        group object. Jobs that fit in neither attempt are left out.
    """
    placed: dict[int, Group] = {}
    fresh: list[JobState] = []
    for job in chosen:
        group = groups.get(job.order)
        if group is None:
            fresh.append(job)
        else:
            placed[job.order] = group
    for order, group in groups.items():
        if order not in placed:
            slots.release(group.gpus)
    fresh.sort(key=_larger_first)
    homeless = False
    for job in fresh:
        place = slots.allocate(job.spec.gpus)
        if place is None:
            homeless = True
        else:
            placed[job.order] = Group((job,), place)
    if not homeless:
        return placed, slots
    slots = FreeGpus(cluster)
    moved: dict[int, Group] = {}
    for job in sorted(chosen, key=_larger_first):
        place = slots.allocate(job.spec.gpus)
        if place is not None:
            group = groups.get(job.order)
            stays = group is not None and group.gpus == place
            moved[job.order] = group if stays and group is not None else Group((job,), place)
    return moved, slots


def _larger_first(job: JobState) -> int:
    return -job.spec.gpus
