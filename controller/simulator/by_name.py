"""Simulations of policies by name."""

from __future__ import annotations

from dataclasses import replace

from controller.policies import registry
from controller.policies.family import SimulationConfig
from controller.simulator.divided import DividedRun
from controller.simulator.policy_run import PolicyRun


def make(name: str, config: SimulationConfig) -> PolicyRun:
    """Return a fresh run of a policy, one in each virtual cluster if the cluster is divided.

    Raises as `controller.policies.registry.make`.
    """
    cluster = config.cluster
    if not cluster.virtual:
        return PolicyRun.of(registry.make(name, config))
    registry.check_known(name)
    parts = {vc: make(name, replace(config, cluster=cluster.part(vc))) for vc in cluster.virtual}
    first = parts[cluster.virtual[0]]
    return DividedRun(first.policy, first.speed, first.interval_s, parts=parts)
