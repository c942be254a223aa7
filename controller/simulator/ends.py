"""The next job to end."""

from __future__ import annotations

import heapq
import math

from controller.policies.scheduling.policy import JobState

ROOM = 64
"""How many entries may be outdated, beside as many as are not."""


class Ends:
    """Ends in a heap; an entry is outdated once its job's speed has changed."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, JobState]] = []
        self._room = ROOM

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, job: JobState) -> None:
        """Note the predicted end of `job`."""
        heapq.heappush(self._heap, (job.end_s(), job.order, job.version, job))
        if len(self._heap) > self._room:
            self._tidy()

    def _tidy(self) -> None:
        """Drop outdated entries: jobs that are restarted often would leave thousands of far ends."""
        self._heap = [entry for entry in self._heap if entry[2] == entry[3].version]
        heapq.heapify(self._heap)
        self._room = 2 * len(self._heap) + ROOM

    def next_s(self) -> float:
        """Return when the next job ends; infinite if none runs."""
        heap = self._heap
        while heap and heap[0][2] != heap[0][3].version:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop(self) -> list[JobState]:
        """Remove and return all jobs that end next, at one time."""
        end_s = self.next_s()
        ending: list[JobState] = []
        while self.next_s() == end_s:
            ending.append(heapq.heappop(self._heap)[3])
        return ending
