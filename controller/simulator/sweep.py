"""Sweeps: the same policies over several loads and seeds, and means over the seeds."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.policies.family import SimulationConfig
from controller.policies.scheduling.errors import BadSpec
from controller.simulator.runs import Outcome, Source, Task

MEASURES = (
    *("avg_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "avg_slowdown", "p99_slowdown"),
    *("avg_queue", "gpu_busy", "fairness"),
)
"""Metrics that are averaged over seeds."""

MOST_TASKS = 100_000
"""Simulations of one sweep: all their outcomes are kept until the end."""


@dataclass(frozen=True, slots=True)
class Point:
    """A policy at a load: means over the seeds, and their spread (standard deviation; 0 of one)."""

    policy: str
    load: float
    seeds: int
    mean: dict[str, float]
    spread: dict[str, float]


def tasks(
    policies: Sequence[str],
    source: Source,
    config: SimulationConfig,
    *,
    loads: Sequence[float],
    seeds: Sequence[int],
    rows: bool = False,
) -> list[Task]:
    """Return a task for each policy, load and seed.

    Args:
        policies: Names of the policies.
        source: Source of the jobs; its load and seed are replaced.
        config: Configuration of all simulations.
        loads: The loads to simulate.
        seeds: The seeds to simulate.
        rows: Ask for the result of each job.

    Raises BadSpec for a load that is not positive, none of either, several seeds of a trace, in which
    nothing is random, a duplicate value, or more than `MOST_TASKS` tasks.
    """
    for name, values in (("load", loads), ("seed", seeds)):
        if not values:
            raise BadSpec(f"no {name} to sweep over")
        if len(set(values)) != len(values):
            raise BadSpec(f"a {name} appears twice: {Counter(values).most_common(1)[0][0]}")
    if source.trace is not None and len(seeds) > 1:
        raise BadSpec(f"{len(seeds)} seeds of {source.trace}: nothing in a trace is random; want one")
    if (wanted := len(policies) * len(loads) * len(seeds)) > MOST_TASKS:
        raise BadSpec(f"{wanted:,} simulations, of each policy, load and seed; want at most {MOST_TASKS:,}")
    return [
        Task(policy, replace(source, load=load, seed=seed), replace(config, seed=seed), rows=rows)
        for load in loads
        for seed in seeds
        for policy in policies
    ]


def points(outcomes: Sequence[Outcome]) -> list[Point]:
    """Return a point for each policy and load, in the order of their first occurrence."""
    groups: dict[tuple[float, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.task.source.load, outcome.task.policy), []).append(outcome)
    return [_point(policy, load, group) for (load, policy), group in groups.items()]


def _point(policy: str, load: float, outcomes: Sequence[Outcome]) -> Point:
    values = {name: [float(getattr(o.metrics, name)) for o in outcomes] for name in MEASURES}
    return Point(
        policy,
        load,
        len(outcomes),
        {name: statistics.fmean(found) for name, found in values.items()},
        {name: statistics.stdev(found) if len(found) > 1 else 0.0 for name, found in values.items()},
    )
