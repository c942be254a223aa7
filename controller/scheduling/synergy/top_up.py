"""Hand out what an allocation leaves over. Not part of Synergy."""

from __future__ import annotations

from collections.abc import Hashable

from controller.scheduling.synergy.demand import Option, ServerShape, within
from controller.scheduling.synergy.fleet import Fleet, Grant, Plan


def top_up(plan: Plan, servers: int, shape: ServerShape) -> Plan:
    """Raise shares with the CPUs and the memory that are free beside their jobs, while that speeds one up.

    The step with the most speed for its part of the servers comes first; ties go to the job that is earlier
    in the plan. TUNE knows an ideal and a fair share for each job and nothing between; this fills
    the gap. No job loses anything. O(steps · jobs · options), with at most one step per job and option.
    """
    fleet = Fleet(servers, shape)
    for grant in plan.grants:
        fleet.take(grant.split, grant.option)
    current = {g.demand.job: g for g in plan.grants}
    steps: dict[Hashable, tuple[float, Option]] = {}
    stale = set(current)  # jobs whose best step has to be found again: something beside them was taken
    while True:
        for job in [j for j in current if j in stale]:
            step = _best_step(current[job], fleet)
            if step is None:
                steps.pop(job, None)
            else:
                steps[job] = step
        if not steps:
            return Plan(tuple(current[g.demand.job] for g in plan.grants), plan.waiting)
        job = max((j for j in current if j in steps), key=lambda j: steps[j][0])
        grant, option = current[job], steps[job][1]
        fleet.give_back(grant.split, grant.option)
        fleet.take(grant.split, option)
        current[job] = Grant(grant.demand, option, grant.split)
        touched = {server for server, _ in grant.split}
        stale = {j for j, g in current.items() if any(s in touched for s, _ in g.split)}


def _best_step(grant: Grant, fleet: Fleet) -> tuple[float, Option] | None:
    """Return the gain per fair share, and the share, of the best larger share that is free."""
    now, shape = grant.option, fleet.shape
    best: tuple[float, Option] | None = None
    for option in grant.demand.options:
        cpus, memory = option.cpus - now.cpus, option.memory_gb - now.memory_gb
        if option.speed <= now.speed or not all(
            within(gpus * cpus, fleet.free(server)[1]) and within(gpus * memory, fleet.free(server)[2])
            for server, gpus in grant.split
        ):
            continue
        cost = max(0.0, cpus / shape.fair_cpus) + max(0.0, memory / shape.fair_memory_gb)
        gain = (option.speed - now.speed) / max(cost, 1e-9)
        if best is None or gain > best[0]:
            best = (gain, option)
    return best
