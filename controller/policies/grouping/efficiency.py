"""Interleaving of jobs: round length T, efficiency gamma, the best order of stages (Muri, eq. 1-4).

Each job spends t[j] seconds of an iteration on resource j, in order, for k resources. In a group of p ≤ k
jobs, job i starts its round at stage ``offset[i]``; in slot j it uses resource (offset[i] + j) mod k.
A slot ends when its longest stage has ended (barriers). So no two jobs use a resource at once if all offsets
differ:

    T = Σ_j max_i t_i[(offset_i + j) mod k]                    (equation 3; equation 1 for k = p = 2)
    gamma = 1 - 1/k Σ_j (T - Σ_i t_i[j]) / T = Σ_i Σ_j t_i[j] / (k T)   (equation 4)

gamma is the mean fraction of time that the resources are busy, so 0 < gamma ≤ 1. For one job, T is the length
of its iteration alone. Only differences between offsets matter, so offset_0 is 0. There are (k-1)!/(k-p)!
orders to try: at most six for k = 4.

`spans` returns a group's timeline: when each job uses which resource, as in Muri's figures (SIGCOMM'22).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from controller.errors import BadSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 1 << 16
"""Maximum number of slot lengths that `union_rounds` computes at a time; it bounds the memory used."""

Profile = tuple[float, ...]
"""Seconds per iteration on each resource, in stage order."""


@dataclass(frozen=True, slots=True)
class Interleaving:
    """A group's round: its length, its efficiency gamma, and each job's first stage (`offsets`)."""

    round_s: float
    efficiency: float
    offsets: tuple[int, ...]


def round_s(jobs: Sequence[Profile], offsets: Sequence[int]) -> float:
    """Return the round length T, in seconds, of `jobs` that start at the stages `offsets` (equation 3).

    >>> round_s([(2, 1), (1, 2)], [0, 1])
    3
    """
    k = check(jobs)
    if len(offsets) != len(jobs) or len({offset % k for offset in offsets}) != len(jobs):
        raise BadSpec(
            f"offsets {tuple(offsets)} for {len(jobs)} jobs; want a different one for each, in 0..{k - 1}"
        )
    return _round_s(jobs, [offset % k for offset in offsets])


def _round_s(jobs: Sequence[Profile], offsets: Sequence[int]) -> float:
    turned = [job[offset:] + job[:offset] for job, offset in zip(jobs, offsets, strict=True)]
    length_s: float = sum(map(max, zip(*turned, strict=True)))
    return length_s


def efficiency(jobs: Sequence[Profile], length_s: float) -> float:
    """Return the efficiency gamma of `jobs` in rounds of `length_s` seconds (equation 4).

    >>> efficiency([(2, 1), (2, 1)], 4)
    0.75
    """
    return sum(map(sum, jobs)) / (length_s * len(jobs[0]))


def best(jobs: Sequence[Profile]) -> Interleaving:
    """Return the shortest round of `jobs` over all orders of stages; of equal rounds, the first.

    >>> best([(2.5, 1.25), (1.25, 2.5)])
    Interleaving(round_s=3.75, efficiency=1.0, offsets=(0, 1))
    """
    return _extreme(tuple(map(tuple, jobs)), False)


def worst(jobs: Sequence[Profile]) -> Interleaving:
    """Return the longest round of `jobs` over all orders of stages (an ablation of the paper)."""
    return _extreme(tuple(map(tuple, jobs)), True)


def orders(k: int, p: int) -> list[tuple[int, ...]]:
    """Return every assignment of different first stages, 0 to k - 1, to p jobs; job 0 has stage 0."""
    return [(0, *rest) for rest in itertools.permutations(range(1, k), p - 1)]


@lru_cache(maxsize=1 << 18)
def _extreme(jobs: tuple[Profile, ...], longest: bool) -> Interleaving:
    check(jobs)
    found_s = 0.0 if longest else math.inf
    found: tuple[int, ...] = ()
    for offsets in orders(len(jobs[0]), len(jobs)):
        length_s = _round_s(jobs, offsets)
        if length_s > found_s if longest else length_s < found_s:
            found_s, found = length_s, offsets
    return Interleaving(found_s, min(1.0, efficiency(jobs, found_s)), found)


def check(jobs: Sequence[Profile]) -> int:
    """Return the number of stages, k, of each job.

    Raises BadSpec for no job, more jobs than resources, or impossible stage times.
    """
    if not jobs:
        raise BadSpec("a group needs at least one job")
    k = len(jobs[0])
    if any(len(job) != k for job in jobs):
        raise BadSpec(
            f"jobs with profiles of different numbers of stages: {sorted({len(job) for job in jobs})}"
        )
    if not 1 <= len(jobs) <= k:
        raise BadSpec(f"{len(jobs)} jobs share {k} resources; at most {k} can take turns")
    for number, job in enumerate(jobs):
        if any(not (stage >= 0 and math.isfinite(stage)) for stage in job) or not any(job):
            raise BadSpec(f"job {number} has stage times {job}; they must not be negative, nor all zero")
    return k


def union_rounds(
    left: NDArray[np.float64], right: NDArray[np.float64], *, longest: bool = False
) -> NDArray[np.float64]:
    """Return the round length T of each group of `left` joined with each group of `right`, in seconds.

    Each union has its best order of stages or, with `longest`, its worst. The arguments are stage times of
    shapes (m, p, k) and (n, q, k): m groups of p jobs and n groups of q jobs with k stages each; p + q ≤ k.
    The result has shape (m, n). O(m n k (k-1)!/(k-p-q)!), in compiled loops.
    """
    import numpy as np  # imported late: commands whose jobs take no turns start faster without numpy

    (m, p, k), (n, q, _) = left.shape, right.shape
    if p + q > k:
        raise BadSpec(f"{p + q} jobs share {k} resources; at most {k} can take turns")
    stages = _stages(k, p + q)
    mine = left[:, np.arange(p), stages[:, :, :p]].max(axis=3)
    theirs = right[:, np.arange(q), stages[:, :, p:]].max(axis=3).transpose(1, 2, 0)[None]
    found = np.empty((m, n))
    block = max(1, BLOCK // (n * stages[..., 0].size)) if n else 1
    for row in range(0, m, block):
        slots_s = np.maximum(mine[row : row + block, :, :, None], theirs)
        lengths_s = slots_s.sum(axis=2)
        found[row : row + block] = lengths_s.max(axis=1) if longest else lengths_s.min(axis=1)
    return found


@cache
def _stages(k: int, jobs: int) -> NDArray[np.int64]:
    """Return, for each order and slot, the stage that each job is in; shape (orders, slots, jobs)."""
    import numpy as np

    offsets = np.array(orders(k, jobs))
    return (offsets[:, None, :] + np.arange(k)[None, :, None]) % k


@dataclass(frozen=True, slots=True)
class Span:
    """Time span in which job `job` uses resource `resource`, in seconds from the start of the round."""

    job: int
    resource: int
    start_s: float
    end_s: float


def spans(jobs: Sequence[Profile], offsets: Sequence[int]) -> list[Span]:
    """Return the timeline of one round of `jobs` that start at the stages `offsets`, in order of time.

    A slot begins when the previous one has ended, for all jobs at once (the barriers of equation 3), and
    lasts as long as its longest stage. Stages of zero length are left out. No two spans of one resource
    overlap, nor do two spans of one job. Raises BadSpec if two jobs have the same offset.

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
