"""Timeline of a group: when each job uses which resource, as boxes like Muri's figures (SIGCOMM'22)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.policies.grouping.efficiency import Profile, round_s


@dataclass(frozen=True, slots=True)
class Span:
    """Job number `job` uses resource number `resource` for this long; seconds from the round's start."""

    job: int
    resource: int
    start_s: float
    end_s: float


def spans(jobs: Sequence[Profile], offsets: Sequence[int]) -> list[Span]:
    """Return the timeline of one round of `jobs` that start it at the stages `offsets`, in order of time.

    A slot begins when the previous one has ended, for all jobs at once (the barriers of equation 3), and
    lasts as long as its longest stage. Stages of zero length are left out. No two spans of one resource
    overlap, nor do two of one job. Raises BadSpec if two jobs have the same offset.

    >>> spans([(2, 1), (1, 2)], [0, 1])[:2]
    [Span(job=0, resource=0, start_s=0.0, end_s=2.0), Span(job=1, resource=1, start_s=0.0, end_s=2.0)]
    """
    round_s(jobs, offsets)  # for its checks
    k = len(jobs[0])
    found = []
    now_s = 0.0
    for slot in range(k):
        longest_s = 0.0
        for number, (job, offset) in enumerate(zip(jobs, offsets, strict=True)):
            resource = (offset + slot) % k
            if job[resource]:
                found.append(Span(number, resource, now_s, now_s + job[resource]))
                longest_s = max(longest_s, job[resource])
        now_s += longest_s
    return found
