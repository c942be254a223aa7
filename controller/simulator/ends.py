"""Which job ends next."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from controller.scheduling.policy import Job


class Ends:
    """Ends in a heap; an entry is outdated once its job's speed has changed."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Job]] = []

    def push(self, job: Job) -> None:
        """Note the end of `job` as things stand now."""
        heapq.heappush(self._heap, (job.end_s(), job.order, job.version, job))

    def replace(self, jobs: Sequence[Job]) -> None:
        """Forget everything and note the ends of `jobs`."""
        self._heap = []
        for job in jobs:
            self.push(job)

    def next_s(self) -> float:
        """Return when the next job ends, infinity if none runs."""
        heap = self._heap
        while heap and heap[0][2] != heap[0][3].version:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop(self) -> list[Job]:
        """Take out and return all jobs that end next, at one time."""
        end_s = self.next_s()
        ending: list[Job] = []
        while self.next_s() == end_s:
            ending.append(heapq.heappop(self._heap)[3])
        return ending


class MergedEnds(Ends):
    """Ends as Muri's public simulator foresees them.

    The cost of the start is left out, and an end that is relatively closer than `merge_rel` to one noted
    before it, in the order in which the policy lists the jobs, falls together with that one.
    """

    def __init__(self, merge_rel: float) -> None:
        super().__init__()
        self._merge_rel = merge_rel
        self._next_s = math.inf
        self._next: list[Job] = []

    def push(self, job: Job) -> None:
        """Never happens: all ends are replaced at each event."""
        raise NotImplementedError

    def replace(self, jobs: Sequence[Job]) -> None:
        """Forget everything and note the ends of `jobs`."""
        self._next_s, self._next = math.inf, []
        if not jobs:
            return
        ends = [job.undisturbed_end_s() for job in jobs]
        # only those near the first end can fall together with it
        limit = min(ends)
        limit += abs(limit) * 8 * self._merge_rel
        together: dict[float, list[Job]] = {}
        for job, end_s in zip(jobs, ends, strict=True):
            if end_s <= limit:
                for noted in together:
                    if math.isclose(noted, end_s, rel_tol=self._merge_rel):
                        together[noted].append(job)
                        break
                else:
                    together[end_s] = [job]
        self._next_s = min(together)
        self._next = together[self._next_s]

    def next_s(self) -> float:
        """Return when the next job ends, infinity if none runs."""
        return self._next_s

    def pop(self) -> list[Job]:
        """Take out and return all jobs that end next, at one time."""
        ending, self._next, self._next_s = self._next, [], math.inf
        return ending
