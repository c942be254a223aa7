"""Which job ends next."""

from __future__ import annotations

import heapq
import math

from controller.scheduling.policy import JobState


class Ends:
    """Ends in a heap; an entry is outdated once its job's speed has changed."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, JobState]] = []

    def push(self, job: JobState) -> None:
        """Note the end of `job` as things stand now."""
        heapq.heappush(self._heap, (job.end_s(), job.order, job.version, job))

    def next_s(self) -> float:
        """Return when the next job ends, infinity if none runs."""
        heap = self._heap
        while heap and heap[0][2] != heap[0][3].version:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop(self) -> list[JobState]:
        """Take out and return all jobs that end next, at one time."""
        end_s = self.next_s()
        ending: list[JobState] = []
        while self.next_s() == end_s:
            ending.append(heapq.heappop(self._heap)[3])
        return ending
