"""Waiting jobs in order of rank, one sorted bucket per GPU count.

A rank must not change while a job waits. Buckets make a decision cheap however long the queue is: once a
size does not fit, no job of its bucket will fit, so only the started jobs and one job per size are examined.

`keep_until_repaid` is for policies with time slices. Where a start takes as long as a time slice, jobs that
take turns would do nothing but start. So running jobs continue until each has worked for as long as its start
took: at least half of the time is work, whatever a start costs.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from controller.policies.scheduling.policy import Decision, JobState, View

Rank = Any
"""Any value by which jobs can be sorted: a number or a tuple."""

Entry = tuple[Rank, int, JobState]
"""Rank, the job's order of arrival (which breaks ties), and the job."""


class WaitingJobs:
    """The waiting jobs, by number of GPUs and in order of rank."""

    __slots__ = ("_buckets", "_count")

    def __init__(self) -> None:
        self._buckets: dict[int, list[Entry]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[JobState]:
        return (job for bucket in self._buckets.values() for _, _, job in bucket)

    def add(self, job: JobState, rank: Rank) -> None:
        """Add `job`."""
        insort(self._buckets.setdefault(job.spec.gpus, []), (rank, job.order, job))
        self._count += 1

    def remove(self, job: JobState, rank: Rank) -> None:
        """Remove `job`, which was added with `rank`."""
        bucket = self._buckets[job.spec.gpus]
        del bucket[bisect_left(bucket, (rank, job.order))]
        self._count -= 1

    def discard(self, job: JobState) -> None:
        """Remove `job`, whose rank may be unknown, if it is in the list. O(n)."""
        bucket = self._buckets.get(job.spec.gpus, [])
        kept = [entry for entry in bucket if entry[2] is not job]
        self._count -= len(bucket) - len(kept)
        bucket[:] = kept

    def clear(self) -> None:
        """Remove all jobs."""
        self._buckets.clear()
        self._count = 0

    def bucket(self, gpus: int) -> list[Entry]:
        """Return the waiting jobs with this number of GPUs, in order of rank; callers must not change it."""
        return self._buckets.get(gpus, [])

    def sizes(self) -> Iterable[int]:
        """Return the distinct numbers of GPUs of the waiting jobs."""
        return [size for size, bucket in self._buckets.items() if bucket]

    def drop_first(self, gpus: int, count: int) -> None:
        """Remove the first `count` jobs with this number of GPUs."""
        del self._buckets[gpus][:count]
        self._count -= count


def choose_by_rank(
    waiting: WaitingJobs, running: Iterable[Entry], fits: Callable[[int], bool], *, backfill: bool = True
) -> tuple[list[JobState], dict[int, int]]:
    """Choose the running and waiting jobs that fit, lowest rank first.

    Args:
        waiting: The waiting jobs.
        running: The running jobs with their ranks.
        fits: Function of a number of GPUs that reserves them and returns True, or returns False. It is called
            once for each job. Once it has returned False for a number, it must return False for this number.
        backfill: Whether to continue after the first job that does not fit.

    Returns:
        The chosen jobs in order of rank, and, by number of GPUs, how many of the chosen jobs are waiting
        jobs. These are the first jobs of their buckets.
    """
    heap: list[tuple[Rank, int, JobState, list[Entry], int]] = []
    for size in waiting.sizes():
        bucket = waiting.bucket(size)
        heap.append((*bucket[0], bucket, 0))
    held = sorted(running)
    if held:
        heap.append((*held[0], held, 0))
    heapq.heapify(heap)
    chosen: list[JobState] = []
    started: dict[int, int] = {}
    refused: set[int] = set()
    while heap:
        _, _, job, bucket, position = heap[0]
        size = job.spec.gpus
        ok = size not in refused and fits(size)
        if ok:
            chosen.append(job)
            if bucket is not held:
                started[size] = started.get(size, 0) + 1
        else:
            refused.add(size)
            if not backfill:
                break
        position += 1
        if position < len(bucket) and (ok or bucket is held):
            heapq.heapreplace(heap, (*bucket[position], bucket, position))
        else:
            heapq.heappop(heap)
    return chosen, started


def keep_until_repaid(view: View) -> Decision | None:
    """Return a decision that changes nothing, until every start has paid off.

    A start has paid off when the job has worked for as long as the start took. Returns None if every start
    has paid off, or a job has arrived or ended.
    """
    if view.arrived or view.finished:
        return None
    repaid_s = max((job.repaid_s for group in view.groups for job in group.jobs), default=view.now_s)
    return Decision(list(view.groups), repaid_s) if repaid_s > view.now_s else None
