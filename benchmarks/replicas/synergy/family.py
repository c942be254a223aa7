"""``benchmarks.replicas.synergy:ORDER+MODE``: the rules of Synergy's public simulator, to the digit.

It goes through time in rounds: a job has ended at the end of the round with its last iteration.
"""

from __future__ import annotations

import math
from dataclasses import replace

from benchmarks.replicas.steps import SteppedRun
from benchmarks.replicas.synergy.rules import WITH_OPT, RoundSpeed, replica_demands, replica_policy
from controller.policies.family import Family, SimulationConfig
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.synergy.demand import ModelProfile, ServerShape
from controller.policies.scheduling.synergy.family import complete_jobs, profiles_of
from controller.policies.scheduling.synergy.policy import servers_of
from controller.simulator.engine import PolicyRun

ROUND_S = 300.0
ORDERS = {
    "fifo": "by arrival",
    "srtf": "by remaining time",
    "las": "by attained service",
    "ftf": "by finish-time fairness",
    "drf": "by dominant share",
    "tetris": "by weighted demand",
}
MODES = {
    "fair": "GPU-proportional shares",
    "greedy": "ideal shares, or wait",
    "tune": "ideal shares, else fair ones",
    "opt": "whatever the first program grants, even if no server has it",
}


def make(name: str, config: SimulationConfig) -> PolicyRun:
    """Return a fresh policy run, such as ``srtf+tune``."""
    order, _, mode = name.partition("+")
    servers = servers_of(config.cluster)
    shape, *more = {*servers.shapes}
    if more:
        raise BadSpec("servers differ; this needs equal ones")
    profiles = profiles_of(config)
    if config.matrix is None:
        profiles = {model: _like_measured(profile, shape) for model, profile in profiles.items()}
    demand_of = replica_demands(profiles, shape, mode=mode)
    policy = replica_policy(order, mode, demand_of, servers=servers)
    speed = RoundSpeed(demand_of, round_s=ROUND_S)
    return SteppedRun(policy, speed, ROUND_S)


def _like_measured(profile: ModelProfile, shape: ServerShape) -> ModelProfile:
    """Return a made-up profile with ideal shares as published ones are.

    Jobs that need more than the fair share of one resource need no less of the other: else they would take
    more of that as they fall back, and TUNE find no room. Memory is in whole gigabytes: their sums are exact.
    """
    cpus, memory_gb = profile.ideal_cpus, profile.ideal_memory_gb
    if cpus > shape.fair_cpus or memory_gb > shape.fair_memory_gb:
        cpus, memory_gb = max(cpus, shape.fair_cpus), max(memory_gb, shape.fair_memory_gb)
    else:
        memory_gb = max(1.0, math.floor(memory_gb))
    return replace(profile, ideal_cpus=cpus, ideal_memory_gb=memory_gb)


FAMILY = Family(
    "as Synergy's public simulator has them, to the digit; --matrix FILE, or made-up models",
    {
        f"{order}+{mode}": f"{first}; {about}"
        for order, first in ORDERS.items()
        for mode, about in MODES.items()
        if mode != "opt" or order in WITH_OPT
    },
    make,
    complete_jobs,
)
