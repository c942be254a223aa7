"""Stall detection: all that wait have waited too long, and nobody computes what they may wait for."""

from __future__ import annotations

from collections.abc import Iterable

from bmv2_topos.testbeds.virtual.errors import Stalled
from bmv2_topos.testbeds.virtual.jobs import RunningJob
from hostlib.core.state import NEVER


class StallCheck:
    """Looks at all workers, but not before any stall that it can have missed is over the patience."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._due = 0

    def check(self, jobs: Iterable[RunningJob], now: int) -> None:
        """Raise Stalled if no worker of any job has had a result for so long, and none computes."""
        if now < self._due:
            return
        running = list(jobs)
        waited = _least_wait(running, now)
        if waited > self._patience_s * 1e9:
            waiting = describe_waiting(running)
            raise Stalled(f"at {now * 1e-9:.6f} s, no result for {self._patience_s:g} s: {waiting}")
        self._due = now + int(self._patience_s * 1e9) - waited


def _least_wait(jobs: Iterable[RunningJob], now: int) -> int:
    """Return how long the worker has waited that had a result last; 0: one computes, or there is none."""
    waits = []
    for job in jobs:
        for worker in job.workers:
            if not worker.waits or worker.training.due != NEVER:
                return 0
            waits.append(worker.window.stalled_ns(now))
    return min(waits, default=0)


def describe_waiting(jobs: Iterable[RunningJob]) -> str:
    """Say which ranks wait for which packets, and who they heard was missing."""
    found = []
    for job in jobs:
        for worker in job.workers:
            if worker.waits:
                missing = worker.window.missing_ranks(since=0)
                without = f", without rank {', '.join(map(str, missing))}" if missing else ""
                psns = worker.window.outstanding()
                found.append(f"job {job.entry.name!r} rank {worker.rank} waits for {psns}{without}")
    return "; ".join(found) or "nobody waits for a sum"
