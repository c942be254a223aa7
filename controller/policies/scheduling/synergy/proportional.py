"""GPU-proportional allocation: every GPU comes with the same CPUs and memory, whatever the job needs."""

from __future__ import annotations

from collections.abc import Sequence

from controller.policies.scheduling.synergy.demand import Demand, Option, Servers, Split
from controller.policies.scheduling.synergy.fleet import Fleet, Grant, Plan, runnable


def proportional(demands: Sequence[Demand], servers: Servers) -> Plan:
    """Give each job, in priority order, its GPUs with their fair share. O(jobs · servers).

    Jobs are placed largest first, which keeps servers whole; every job that finds GPUs runs. Where servers
    differ, a GPU comes with its own server's part, and the least of them counts for a job on several.
    """
    fleet = Fleet(servers)
    chosen, waiting = runnable(demands, fleet.free_gpus)
    grants = {}
    for job in sorted(chosen, key=lambda d: -d.gpus):
        split = fleet.find_gpus(job)
        assert split is not None  # `runnable` has counted the GPUs
        fair = _fair(job, servers, split)
        fleet.take(split, fair)
        grants[job.job] = Grant(job, fair, split)
    return Plan(tuple(grants[job.job] for job in chosen), tuple(waiting))


def _fair(job: Demand, servers: Servers, split: Split) -> Option:
    shapes = [servers.shapes[server] for server, _ in split]
    cpus = min(shape.fair_cpus for shape in shapes)
    memory_gb = min(shape.fair_memory_gb for shape in shapes)
    return Option(cpus, memory_gb, job.speed(cpus, memory_gb))
