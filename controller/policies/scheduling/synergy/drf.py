"""Dominant resource fairness among tenants, with static demands (Ghodsi et al., NSDI'11): a baseline."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from controller.policies.scheduling.synergy.demand import Demand, Servers
from controller.policies.scheduling.synergy.fleet import Fleet, Grant, Plan, runnable


def dominant_share(job: Demand, servers: Servers) -> float:
    """Return the largest part of a resource of the cluster that the job's ideal share takes."""
    return job.gpus * max(
        1 / servers.gpus,
        job.ideal.cpus / servers.cpus,
        job.ideal.memory_gb / servers.memory_gb,
    )


def drf(demands: Sequence[Demand], servers: Servers) -> Plan:
    """Fill progressively: the tenant with the smallest dominant share places the next of its jobs.

    Jobs of one tenant keep their order; ties between tenants are broken by the share that their next job
    would take. Demands are ideal shares and are not tuned; a job that fits nowhere is skipped. Where
    every job is its own tenant, this takes jobs by dominant share. O(jobs · (tenants + servers)).
    """
    fleet = Fleet(servers)
    runnable(demands, 0)  # for its check
    queues: dict[Hashable, deque[Demand]] = {}
    for index, job in enumerate(demands):
        queues.setdefault(job.tenant or (index,), deque()).append(job)
    shares = dict.fromkeys(queues, 0.0)
    grants, waiting = [], []
    while queues:
        tenant = min(queues, key=lambda t: (shares[t], dominant_share(queues[t][0], servers)))
        job = queues[tenant].popleft()
        if not queues[tenant]:
            del queues[tenant]
        split = fleet.find(job, job.ideal) if job.gpus <= fleet.free_gpus else None
        if split is None:
            waiting.append(job)
            continue
        fleet.take(split, job.ideal)
        shares[tenant] += dominant_share(job, servers)
        grants.append(Grant(job, job.ideal, split))
    return Plan(tuple(grants), tuple(waiting))
