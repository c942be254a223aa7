"""GPU-proportional allocation: every GPU comes with the same CPUs and memory, whatever the job can use."""

from __future__ import annotations

from collections.abc import Sequence

from controller.scheduling.synergy.demand import Demand, Option, ServerShape
from controller.scheduling.synergy.fleet import Fleet, Grant, Plan, runnable


def proportional(demands: Sequence[Demand], servers: int, shape: ServerShape) -> Plan:
    """Give each job, in priority order, its GPUs with their fair share. O(jobs · servers).

    Jobs are placed largest first, which keeps servers whole; every job that finds GPUs runs, at speed 1.
    """
    fleet = Fleet(servers, shape)
    chosen, waiting = runnable(demands, fleet.free_gpus)
    fair = Option(shape.fair_cpus, shape.fair_memory_gb, 1.0)
    grants = {}
    for job in sorted(chosen, key=lambda d: -d.gpus):
        split = fleet.find_gpus(job.gpus)
        assert split is not None  # `runnable` has counted the GPUs
        fleet.take(split, fair)
        grants[job.job] = Grant(job, fair, split)
    return Plan(tuple(grants[job.job] for job in chosen), tuple(waiting))
