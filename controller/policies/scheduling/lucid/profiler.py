"""The non-intrusive profiler: which job is profiled next, for how long, on how many nodes (Lucid, 3.2)."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.policy import JobState


@dataclass(frozen=True, slots=True)
class ProfilerRules:
    """The profiler's settings.

    Attributes:
        nodes: Servers set aside for profiling.
        limit_s: Longest profiling time of a job. A job that ends before is done, any other one starts
            again.
        max_gpus: Jobs with more GPUs are not profiled.
        lent_nodes: Servers that the rest of the cluster lends in a burst.
        grow_at: Jobs in the profiler's queue from which it grows and shortens the profiling time.
        shrink_at: Jobs in the queue below which it returns servers.
        burst_limit_s: `limit_s` in a burst.
        busy_gpus: Forecast of GPUs asked for in the next intervals above which it keeps lent servers.
    """

    nodes: int
    limit_s: float
    max_gpus: int
    lent_nodes: int = 0
    grow_at: int = 10
    shrink_at: int = 5
    burst_limit_s: float | None = None
    busy_gpus: float = math.inf

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.max_gpus < 1 or self.lent_nodes < 0 or not self.limit_s > 0:
            raise BadSpec(
                f"a profiler of {self.nodes} nodes, {self.limit_s} s and {self.max_gpus} GPUs at most,"
                f" {self.lent_nodes} nodes lent; it needs one node, some time and one GPU"
            )
        if not 0 <= self.shrink_at <= self.grow_at:
            raise BadSpec(f"a profiler that shrinks at {self.shrink_at} jobs and grows at {self.grow_at}")
        if self.burst_limit_s is not None and not 0 < self.burst_limit_s <= self.limit_s:
            raise BadSpec(f"a profiling time of {self.burst_limit_s} s in bursts and {self.limit_s} s else")

    def time_s(self, queue: int) -> float:
        """Return the profiling time in seconds of a job that starts now (time-aware scaling)."""
        hurried = self.burst_limit_s is not None and queue > self.grow_at
        return self.burst_limit_s if hurried and self.burst_limit_s is not None else self.limit_s

    def wanted_nodes(self, queue: int, now: int, forecast_gpus: Sequence[float] = ()) -> int:
        """Return how many nodes the profiler should have (time-aware scaling), one more or fewer at a time.

        It borrows while more than `grow_at` jobs queue, and returns nodes when fewer than `shrink_at` do and
        the forecast does not predict the next burst.
        """
        if queue > self.grow_at and now < self.nodes + self.lent_nodes:
            return now + 1
        expected = sum(forecast_gpus) / len(forecast_gpus) if forecast_gpus else 0.0
        if queue < self.shrink_at and now > self.nodes and expected <= self.busy_gpus:
            return now - 1
        return now


class ProfileQueue:
    """Jobs that wait for profiling, least GPUs first (space-aware profiling, algorithm 1).

    Profiling takes about the same time for every job, so smallest first gives most feedback soonest; equal
    jobs go in order of arrival.
    """

    def __init__(self) -> None:
        self._jobs: list[tuple[int, int, JobState]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[JobState]:
        return (job for _, _, job in self._jobs)

    def add(self, job: JobState) -> None:
        """Queue a job."""
        insort(self._jobs, (job.spec.gpus, job.order, job))

    def start(self, place: Callable[[int], tuple[int, ...] | None]) -> list[tuple[JobState, tuple[int, ...]]]:
        """Remove the jobs for which `place` finds GPUs, until the first for which it finds none."""
        started = []
        for gpus, _, job in self._jobs:
            where = place(gpus)
            if where is None:
                break
            started.append((job, where))
        del self._jobs[: len(started)]
        return started
