"""Synergy-GREEDY: each job gets its ideal share or waits (Synergy, OSDI'22, 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

from controller.policies.scheduling.synergy.demand import Demand, Servers
from controller.policies.scheduling.synergy.fleet import Fleet, Grant, Plan, runnable


def greedy(demands: Sequence[Demand], servers: Servers) -> Plan:
    """Place each job, in priority order, where its ideal share is free; skip it if that is nowhere.

    O(jobs · servers). GPUs can stay idle because CPUs or memory are used up: that is its weakness.
    """
    fleet = Fleet(servers)
    runnable(demands, 0)  # for its check
    grants, waiting = [], []
    for job in demands:
        split = fleet.find(job, job.ideal) if job.gpus <= fleet.free_gpus else None
        if split is None:
            waiting.append(job)
            continue
        fleet.take(split, job.ideal)
        grants.append(Grant(job, job.ideal, split))
    return Plan(tuple(grants), tuple(waiting))
