"""Speed of the grouping of jobs, and efficiency of the groups."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from controller.grouping.efficiency import Profile
from controller.grouping.rounds import group
from controller.simulator.generate import KINDS


@dataclass(frozen=True, slots=True)
class Grouping:
    """One measurement: `total_efficiency` is the sum of gamma over all groups."""

    jobs: int
    resources: int
    kinds: int
    groups: int
    time_s: float
    jobs_per_s: float
    total_efficiency: float
    mean_efficiency: float


def profiles(jobs: int, resources: int, kinds: int, seed: int) -> list[Profile]:
    """Return random profiles.

    Args:
        jobs: Number of jobs.
        resources: Number of stages of each.
        kinds: Number of different profiles; 0: all differ.
        seed: Of the random numbers.
    """
    rng = random.Random(seed)

    def one() -> Profile:
        return tuple(rng.random() for _ in range(resources))

    if not kinds:
        return [one() for _ in range(jobs)]
    some = [one() for _ in range(kinds)]
    if resources == 4 and kinds == len(KINDS):
        some = list(KINDS.values())
    return [rng.choice(some) for _ in range(jobs)]


def measure_grouping(jobs: int, *, resources: int = 4, kinds: int = 0, seed: int = 0) -> Grouping:
    """Group jobs once and measure, after a small grouping as warm-up.

    Args:
        jobs: Number of jobs.
        resources: Number of stages of each.
        kinds: Number of different profiles; 0: all differ.
        seed: Of the random profiles.
    """
    group(profiles(8, resources, 0, seed))
    given = profiles(jobs, resources, kinds, seed)
    started = time.perf_counter()
    plans = group(given)
    time_s = time.perf_counter() - started
    total = sum(plan.interleaving.efficiency for plan in plans)
    return Grouping(
        jobs=jobs,
        resources=resources,
        kinds=kinds,
        groups=len(plans),
        time_s=time_s,
        jobs_per_s=jobs / time_s,
        total_efficiency=total,
        mean_efficiency=total / max(1, len(plans)),
    )
