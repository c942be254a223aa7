"""The length of a group's round as Muri's public simulator computes it, for three stage times per job.

The trace's three numbers are loading and preprocessing together, GPU, and network. The simulator has four
slots to a round and lets the first stage span two of them. A job at position p of the order starts p slots
late; a slot ends when the stages that lie in it have ended. The round is what the ends of slots are apart,
four slots on, once that has settled, in the best order of jobs.

This differs from equation 3 of the paper (`controller.grouping.efficiency`), where each slot belongs to one
of k = 4 stages: with the first stage across two slots, two jobs that both load for long overlap, which is
optimistic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

SLOTS = 4

Stages = tuple[float, ...]


def round_s(jobs: Sequence[Stages], *, worst: bool = False) -> float:
    """Return the seconds of a round of up to four jobs in their best order (or their worst).

    >>> round(round_s([(0.7, 0.1, 0.0), (0.0, 0.4, 0.0)]), 3)
    0.8
    """
    return _round_s(tuple(sorted(jobs)), worst)


@lru_cache(maxsize=1 << 20)
def _round_s(jobs: tuple[Stages, ...], worst: bool) -> float:
    choose: Callable[[float, float], float] = max if worst else min
    best_s = 0.0 if worst else math.inf
    for order in set(itertools.permutations(jobs)):
        best_s = choose(best_s, _in_order_s(order))
    if len(jobs) == 2:  # two jobs may also stand two slots apart
        (load_a, gpu_a, net_a), (load_b, gpu_b, net_b) = jobs
        best_s = choose(best_s, max(load_a, gpu_b + net_b) + max(load_b, gpu_a + net_a))
    return best_s


def _in_order_s(jobs: Sequence[Stages]) -> float:
    count = len(jobs)
    ends = [0.0] * (2 * SLOTS + 1)
    for slot in range(2 * SLOTS):
        # nobody at a position beyond the last job: that stage does not hold the slot open
        start, end = ends[slot], 0.0
        if (position := (slot + 1) % SLOTS) < count:
            end = max(end, start + jobs[position][2])
        if (position := (slot + 2) % SLOTS) < count:
            end = max(end, start + jobs[position][1])
        if slot and (position := (slot + 3) % SLOTS) < count:
            end = max(end, ends[slot - 1] + jobs[position][0])
        ends[slot + 1] = end
        if slot >= SLOTS and math.isclose(end - ends[slot - 3], start - ends[slot - 4], rel_tol=1e-3):
            break
    if end - ends[slot - 3] > 0:
        return end - ends[slot - 3]
    return ends[2 * SLOTS] - ends[SLOTS]
