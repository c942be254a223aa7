"""Synergy's policies by name: an order of the jobs and a way to allocate.

``synergy:ORDER+ALLOCATOR``: speed by the CPUs and the memory that a job is granted.
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
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.synergy.allocators import (
    SharePlan,
    drf,
    greedy,
    proportional,
    tetris,
    top_up,
    tune,
)
from controller.policies.scheduling.synergy.demand import Demand, Servers
from controller.policies.scheduling.synergy.matrix_csv import ModelProfile, read_profiles
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
    """Allocate as TUNE on full or on empty servers, whichever is better, and distribute the rest.

    Not part of Synergy. Like TUNE it leaves no job slower than its fair share, and its throughput is no less.
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
    """Return a fresh policy, such as `srtf` with `tune`.

    Args:
        order: One of `RANKS`. DRF and Tetris, which have their own order, use it only to break ties.
        allocator: One of `ALLOCATORS`.
        demand_of: Returns a job's demand; `demands_by_matrix` makes it.
        stay: Running jobs stay where they are, if their share is there.

    Raises BadSpec for an unknown name.
    """
    for name, known in ((order, RANKS), (allocator, ALLOCATORS)):
        if name not in known:
            raise BadSpec(f"{name!r} is not among Synergy's {', '.join(known)}")
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
    "proportional": "CPUs and memory by GPUs",
    "greedy": "ideal shares, or wait",
    "tune": "ideal shares where they fit, else fair ones (Synergy, OSDI'22)",
    "tune+top-up": "the same, and unused CPUs and memory distributed",
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
        "1: jobs that go on stay where they are if their share is there; 0: as published", True
    )


def profiles_of(config: SimulationConfig) -> dict[str, ModelProfile]:
    """Return the profiles for these servers by model. Raises the errors of reading the file."""
    servers = servers_of(config.cluster)
    if config.matrix is None:
        return model_profiles(servers)
    with raising_bad_trace(config.matrix):
        return read_profiles(config.matrix, cpus_per_gpu=round(servers.fair_cpus))


def complete_jobs(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Return the jobs with models that have a profile."""
    rng = random.Random(config.seed)
    models = sorted(profiles_of(config))
    return [replace(spec, model=rng.choice(models)) for spec in specs]


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval, such as ``srtf+tune``."""
    matrices = {model: profile.sensitivity for model, profile in profiles_of(config).items()}
    demand_of = demands_by_matrix(matrices, servers_of(config.cluster))
    order, _, allocator = name.partition("+")
    options = resolve_options(SynergyOptions, config)
    policy = synergy(order, allocator, demand_of, stay=options.stay)
    speed = ShareSpeed(demand_of, restart_scale=options.restart_scale)
    return Setup(policy, speed, interval_s=ROUND_S)


FAMILY = Family(
    "CPUs and memory by sensitivity; --matrix FILE, or made-up models",
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
