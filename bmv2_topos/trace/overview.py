"""Summary of captures: the jobs and their PSNs, to choose which PSNs to examine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from bmv2_topos.trace.events import Event

_WENT_ROUND = frozenset({"collided", "bypassed", "preempted", "reclaimed", "flushed"})


@dataclass(slots=True)
class JobOverview:
    """Summary of a job's captured packets; the sets contain PSNs."""

    packets: int = 0
    psns: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    resent: set[int] = field(default_factory=set)
    went_round: set[int] = field(default_factory=set)
    """PSNs of sums of which a part went through the fallback server or was evicted from its slot."""


def overview(events: Iterable[Event]) -> dict[int, JobOverview]:
    """Return a summary of the captured packets of each job, by job id."""
    jobs: dict[int, JobOverview] = defaultdict(JobOverview)
    for event in events:
        job = jobs[event.job]
        job.packets += 1
        job.psns.add(event.psn)
        if event.lost:
            job.lost.add(event.psn)
        if event.resent:
            job.resent.add(event.psn)
        if event.outcome in _WENT_ROUND:
            job.went_round.add(event.psn)
    return dict(sorted(jobs.items()))
