"""``synergy:ORDER+ALLOCATOR``: speed by the CPUs and the memory that a job is granted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from controller.scheduling.model import JobSpec
from controller.scheduling.synergy import ModelProfile, read_profiles
from controller.scheduling.synergy.catalog import model_profiles
from controller.scheduling.synergy.policies import ALLOCATORS, synergy
from controller.scheduling.synergy.policy import RANKS, demands_by_matrix, server_shape
from controller.scheduling.synergy.speed import SharedSpeed
from controller.simulator.families.base import Family, SimulationConfig, readable
from controller.simulator.policy_run import PolicyRun

ROUND_S = 300.0
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
    "tune+top-up": "the same, and what is left over",
    "opt": "the best shares by linear programs",
    "drf": "dominant resource fairness; the order breaks ties",
    "tetris": "packed by how demands align with what is free; the order breaks ties",
}
"""Descriptions of the orders and the allocators."""


def profiles_of(config: SimulationConfig) -> dict[str, ModelProfile]:
    """Return the profiles for these servers by model. Raises what reading the file raises."""
    shape = server_shape(config.cluster)
    if config.matrix is None:
        return model_profiles(shape)
    with readable(config.matrix):
        return read_profiles(config.matrix, cpus_per_gpu=round(shape.fair_cpus))


def dress(specs: Sequence[JobSpec], config: SimulationConfig) -> list[JobSpec]:
    """Return the jobs with models that have a profile."""
    rng = random.Random(config.seed)
    models = sorted(profiles_of(config))
    return [replace(spec, model=rng.choice(models)) for spec in specs]


def make(name: str, config: SimulationConfig) -> PolicyRun:
    """Return a fresh policy run, such as ``srtf+tune``."""
    matrices = {model: profile.sensitivity for model, profile in profiles_of(config).items()}
    demand_of = demands_by_matrix(matrices, server_shape(config.cluster))
    order, _, allocator = name.partition("+")
    policy = synergy(order, allocator, demand_of, round_s=ROUND_S)
    return PolicyRun(policy, SharedSpeed(demand_of), interval_s=ROUND_S)


FAMILY = Family(
    "CPUs and memory by sensitivity; --matrix FILE, or made-up models",
    {
        f"{order}+{allocator}": f"{ORDERS[order]}; {ABOUT[allocator]}"
        for order in RANKS
        for allocator in ALLOCATORS
    },
    make,
    dress,
    main=("srtf+tune",),
)
