"""Stall detection: all that wait have waited too long, and nobody computes what they may wait for."""

from __future__ import annotations

from collections.abc import Iterable

from bmv2_topos.testbeds.virtual.errors import Stalled
from bmv2_topos.testbeds.virtual.jobs import RunningJob
from hostlib.core.state import NEVER


def check_stall(jobs: Iterable[RunningJob], now: int, patience_s: float) -> None:
    """Raise Stalled if no worker of any job has had a result for so long, and none computes."""
    running = list(jobs)
    waits = []
    for job in running:
        for worker in job.workers:
            if not worker.waits or worker.training.due != NEVER:
                return
            waits.append(worker.window.stalled_ns(now))
    if waits and min(waits) > patience_s * 1e9:
        waiting = describe_waiting(running)
        raise Stalled(f"at {now * 1e-9:.6f} s, no result for {patience_s:g} s: {waiting}")


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
