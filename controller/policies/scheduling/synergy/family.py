"""The family ``synergy:ORDER+ALLOCATOR``: an order of the jobs and an allocator of CPUs and memory.

The speed of a job depends on the CPUs and the memory that it is granted.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.policies.family import (
    Family,
    Options,
    Setup,
    SimulationConfig,
    declared_settings,
    option,
    raising_bad_trace,
    resolve_options,
)
from controller.policies.scheduling.policy import Submission
from controller.policies.scheduling.synergy.allocators import (
    SharePlan,
    drf,
    greedy,
    proportional,
    tetris,
    top_up,
    tune,
)
from controller.policies.scheduling.synergy.demand import Demand, ModelProfile, Servers, read_profiles
from controller.policies.scheduling.synergy.opt import opt
from controller.policies.scheduling.synergy.policy import (
    RANKS,
    ROUND_S,
    Allocator,
    DemandOf,
    ShareSpeed,
    SynergyPolicy,
    by_arrival,
    demands_by_matrix,
    servers_of,
)
from controller.policies.scheduling.synergy.profiling import model_profiles


def _opt(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    return opt(demands, servers).plan


def tune_and_top_up(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Return the better one of TUNE's plans with and without `spread`, with unused resources distributed.

    Not part of Synergy. No job runs slower than with its fair share, and the throughput is at least TUNE's.
    """
    plans = [tune(demands, servers, spread=spread) for spread in (False, True)]
    return top_up(max(plans, key=lambda plan: plan.throughput), servers)


ALLOCATORS: Mapping[str, Allocator] = {
    "proportional": proportional,
    "greedy": greedy,
    "tune": tune,
    "tune+top-up": tune_and_top_up,
    "opt": _opt,
    "drf": drf,
    "tetris": tetris,
}


def synergy(order: str, allocator: str, demand_of: DemandOf, *, stay: bool = False) -> SynergyPolicy:
    """Return a new policy of an order and an allocator, such as `srtf` with `tune`.

    Args:
        order: One of `RANKS`. DRF and Tetris, which have their own order, use it only to break ties.
        allocator: One of `ALLOCATORS`.
        demand_of: Function that returns a job's demand, made by `demands_by_matrix`.
        stay: Whether running jobs stay on their servers, if these have their share.
    """
    rank = RANKS[order]
    return SynergyPolicy(
        f"{order}+{allocator}",
        rank,
        ALLOCATORS[allocator],
        demand_of,
        drifts=rank is not by_arrival or allocator == "tetris",
        stay=stay,
    )


ORDERS = {
    "fifo": "by arrival",
    "srtf": "by remaining time",
    "las": "by attained service",
    "ftf": "by finish-time fairness",
}
ABOUT = {
    "proportional": "CPUs and memory in proportion to GPUs",
    "greedy": "a job gets its ideal share, or waits",
    "tune": "ideal shares where they fit, else fair ones (Synergy, OSDI'22)",
    "tune+top-up": "shares as in tune, and unused CPUs and memory distributed",
    "opt": "the best shares by linear programs",
    "drf": "dominant resource fairness; the order breaks ties",
    "tetris": "packed by the alignment of demands with free resources; the order breaks ties",
}
"""Descriptions of the orders and the allocators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynergyOptions(Options):
    """Options of the family."""

    restart_scale: float = option(
        "factor on the cost of restarts; 0: free, as in Synergy's paper", 1.0, 0.0, 1e6
    )
    stay: bool = option(
        "1: running jobs stay on their servers if these have their share; 0: as published", True
    )


def profiles_of(config: SimulationConfig) -> dict[str, ModelProfile]:
    """Return the profiles for the cluster's servers, by model. Raises the errors of reading the file."""
    servers = servers_of(config.cluster)
    if config.matrix is None:
        return model_profiles(servers)
    with raising_bad_trace(config.matrix):
        return read_profiles(config.matrix, cpus_per_gpu=round(servers.fair_cpus))


def complete_jobs(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Give each job a random model that has a profile, drawn by `config.seed`."""
    rng = random.Random(config.seed)
    models = sorted(profiles_of(config))
    return [replace(spec, model=rng.choice(models)) for spec in specs]


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a new policy, such as ``srtf+tune``, with its speed model and decision interval."""
    matrices = {model: profile.sensitivity for model, profile in profiles_of(config).items()}
    demand_of = demands_by_matrix(matrices, servers_of(config.cluster))
    order, _, allocator = name.partition("+")
    options = resolve_options(SynergyOptions, config)
    policy = synergy(order, allocator, demand_of, stay=options.stay)
    speed = ShareSpeed(demand_of, restart_scale=options.restart_scale)
    return Setup(policy, speed, interval_s=ROUND_S)


FAMILY = Family(
    "CPUs and memory by sensitivity; matrices from --matrix FILE, or of synthetic models",
    {
        f"{order}+{allocator}": f"{ORDERS[order]}; {ABOUT[allocator]}"
        for order in RANKS
        for allocator in ALLOCATORS
    },
    make,
    complete_jobs,
    settings=declared_settings(SynergyOptions),
    main=("srtf+tune",),
)
