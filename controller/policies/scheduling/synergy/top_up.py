"""Distribute the resources that an allocation leaves unused. Not part of Synergy."""

from __future__ import annotations

from collections.abc import Iterable

from controller.policies.scheduling.synergy.demand import Option, Servers, within
from controller.policies.scheduling.synergy.fleet import Fleet, Grant, Plan


def top_up(plan: Plan, servers: Servers) -> Plan:
    """Raise shares with unused CPUs and memory of the jobs' servers, while that speeds a job up.

    The step with the most speed for its part of the servers comes first; ties go to the job that is earlier
    in the plan. TUNE has only an ideal and a fair share for each job; this uses the options in between. No
    job loses anything. At most one step per job and option; each looks at the jobs on the servers that the
    last one changed.
    """
    fleet = Fleet(servers)
    current = list(plan.grants)
    on_server: list[list[int]] = [[] for _ in range(len(servers))]
    for position, grant in enumerate(current):
        fleet.take(grant.split, grant.option)
        for server, _ in grant.split:
            on_server[server].append(position)
    steps: dict[int, tuple[float, Option]] = {}
    stale: Iterable[int] = range(len(current))
    while True:
        for position in stale:
            step = _best_step(current[position], fleet)
            if step is None:
                steps.pop(position, None)
            else:
                steps[position] = step
        if not steps:
            return Plan(tuple(current), plan.waiting)
        position = max(steps, key=lambda p: (steps[p][0], -p))
        grant, option = current[position], steps[position][1]
        fleet.give_back(grant.split, grant.option)
        fleet.take(grant.split, option)
        current[position] = Grant(grant.demand, option, grant.split)
        stale = {other for server, _ in grant.split for other in on_server[server]}


def _best_step(grant: Grant, fleet: Fleet) -> tuple[float, Option] | None:
    """Return the gain per fair share, and the share, of the best larger share that is free."""
    now, servers = grant.option, fleet.servers
    if now.speed >= grant.demand.ideal.speed:
        return None
    best: tuple[float, Option] | None = None
    for option in grant.demand.options:
        cpus, memory = option.cpus - now.cpus, option.memory_gb - now.memory_gb
        if option.speed <= now.speed or not all(
            within(gpus * cpus, fleet.free(server)[1]) and within(gpus * memory, fleet.free(server)[2])
            for server, gpus in grant.split
        ):
            continue
        cost = max(0.0, cpus / servers.fair_cpus) + max(0.0, memory / servers.fair_memory_gb)
        gain = (option.speed - now.speed) / max(cost, 1e-9)
        if best is None or gain > best[0]:
            best = (gain, option)
    return best
