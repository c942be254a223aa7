"""When jobs would end: the twin of ``controller/_native/weave_outlook.c``."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from controller.policies.grouping.worth import Item

Positions = tuple[int, ...]


def ends_s(
    jobs: Sequence[Item],
    running: Sequence[Positions],
    starting: Sequence[Positions],
    gpus: int,
    round_s: Callable[[Positions], float],
) -> list[float]:
    """Return in how many seconds each of `jobs` would end.

    O(n log n) for n jobs of a few sizes.

    Args:
        jobs: All jobs, in order of the queue.
        running: Groups that run now, as positions in `jobs`.
        starting: Groups that start now; they first pay the starts of all their members.
        gpus: Number of GPUs of the cluster.
        round_s: Returns the length in seconds of a round of these kinds, which are in ascending order.
    """
    return _Outlook(jobs, gpus, round_s).ends_s(running, starting)


class _Outlook:
    def __init__(self, jobs: Sequence[Item], gpus: int, round_s: Callable[[Positions], float]) -> None:
        self._jobs = jobs
        self._free = gpus
        self._round_s = round_s
        self._left = [job.iterations for job in jobs]
        self._events: list[tuple[float, Positions]] = []  # when a group's first member ends
        self._waiting: dict[int, deque[int]] = {}  # by size, in order of the queue

    def ends_s(self, running: Sequence[Positions], starting: Sequence[Positions]) -> list[float]:
        for group in running:
            self._start(group, 0.0)
        for group in starting:
            self._start(group, sum(self._jobs[member].restart_s for member in group))
        started = {member for group in (*running, *starting) for member in group}
        for number, job in enumerate(self._jobs):
            if number not in started:
                self._waiting.setdefault(job.gpus, deque()).append(number)
        ends = [0.0] * len(self._jobs)
        self._start_waiting(0.0)
        while self._events:
            now_s, members = heapq.heappop(self._events)
            ends[members[0]] = now_s
            if len(members) > 1:
                self._go_on(members[1:], now_s)
            else:
                self._free += self._jobs[members[0]].gpus
                self._start_waiting(now_s)
        return ends

    def _start_waiting(self, now_s: float) -> None:
        while fitting := [queue for size, queue in self._waiting.items() if size <= self._free and queue]:
            first = min(fitting, key=lambda queue: queue[0]).popleft()
            self._start((first,), now_s + self._jobs[first].restart_s)

    def _start(self, group: Positions, at_s: float) -> None:
        self._free -= self._jobs[group[0]].gpus
        self._go_on(tuple(sorted(group, key=self._left.__getitem__)), at_s)

    def _go_on(self, members: Positions, at_s: float) -> None:
        """Note when the first of `members` ends; they are in order of what they have left."""
        jobs, least = self._jobs, self._left[members[0]]
        for member in members:
            self._left[member] -= least
        if len(members) == 1:
            length_s = jobs[members[0]].alone_s
        else:
            length_s = self._round_s(tuple(sorted(jobs[member].kind for member in members)))
        heapq.heappush(self._events, (at_s + least * length_s, members))
