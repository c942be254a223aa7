"""Simple placement policies for comparisons: random, balanced, packed, local, even (Optimus, EuroSys'18).

Each policy is a function of the problem and the job. All policies take O(servers · log servers);
`gpu_balance` also takes O(workers · log servers).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from controller.policies.placement.policy import PlacementProblem
from controller.vocabulary import Job
from controller.vocabulary.lists import by_key


def fill(room: Iterable[tuple[str, int]], workers: int) -> list[str] | None:
    """Return a server for each worker; each server is filled before the next. None: there is too little room.

    >>> fill([("h1", 2), ("h2", 3)], 4)
    ['h1', 'h1', 'h2', 'h2']
    """
    servers: list[str] = []
    for name, count in room:
        servers += [name] * min(count, workers - len(servers))
        if len(servers) == workers:
            return servers
    return None


def at_random(problem: PlacementProblem, job: Job) -> list[str] | None:
    """Fill servers in random order."""
    room = list(problem.room(job).items())
    problem.rng.shuffle(room)
    return fill(room, job.workers)


def gpu_balance(problem: PlacementProblem, job: Job) -> list[str] | None:
    """Place each worker where most GPUs are free, so that servers are equally busy."""
    heap = [(-free, name) for name, free in problem.free.items() if free >= job.gpus_per_worker]
    heapq.heapify(heap)
    servers: list[str] = []
    while heap and len(servers) < job.workers:
        free, name = heapq.heappop(heap)
        servers.append(name)
        if -free - job.gpus_per_worker >= job.gpus_per_worker:
            heapq.heappush(heap, (free + job.gpus_per_worker, name))
    return sorted(servers) if len(servers) == job.workers else None


def least_fragmentation(problem: PlacementProblem, job: Job) -> list[str] | None:
    """Place the job on the server with the fewest free GPUs that has room for all workers.

    If no server has room for all workers, fill the servers with the fewest free GPUs first. So few servers
    are partly used.
    """
    room = sorted(problem.room(job).items(), key=lambda each: each[1])
    fitting = [each for each in room if each[1] >= job.workers]
    return fill(fitting[:1] or room, job.workers)


def locality_first(problem: PlacementProblem, job: Job) -> list[str] | None:
    """Place the job on one server if one has room, else in one rack if one has room, else in few racks."""
    return _local(problem, problem.room(job), job.workers)


def locality_on_fast_links(problem: PlacementProblem, job: Job) -> list[str] | None:
    """Place all workers on one server; if no server has room for all, use servers with fast links.

    Of several servers with room for all workers, the one with the slowest link is chosen, because a job on
    one server uses no link. A job on several servers is as fast as its slowest link. So it is placed by
    locality among the servers with the fastest links that together have room for it.
    """
    room, link_bps = problem.room(job), problem.topology.link_bps_of
    alone = [name for name, count in room.items() if count >= job.workers]
    if alone:
        return [min(alone, key=lambda name: (link_bps[name], room[name]))] * job.workers
    for least in sorted({link_bps[name] for name in room}, reverse=True):
        fast = {name: count for name, count in room.items() if link_bps[name] >= least}
        if (servers := _local(problem, fast, job.workers)) is not None:
            return servers
    return None


def _local(problem: PlacementProblem, free: Mapping[str, int], workers: int) -> list[str] | None:
    room = sorted(free.items(), key=lambda each: -each[1])
    fitting = [each for each in room if each[1] >= workers]
    if fitting:
        return fill(fitting[-1:], workers)
    racks = by_key((problem.topology.rack_of[each[0]], each) for each in room)
    by_room = sorted(racks.values(), key=lambda rack: -sum(count for _, count in rack))
    fits = [rack for rack in by_room if sum(count for _, count in rack) >= workers]
    chosen = fits[-1] if fits else [each for rack in by_room for each in rack]
    return fill(chosen, workers)


def optimus(problem: PlacementProblem, job: Job) -> list[str] | None:
    """Spread workers evenly over as few servers as possible; prefer servers with most free GPUs."""
    room = sorted(problem.room(job).items(), key=lambda each: -each[1])
    for count in range(1, min(len(room), job.workers) + 1):
        parts = [job.workers // count + (place < job.workers % count) for place in range(count)]
        if all(part <= free for part, (_, free) in zip(parts, room, strict=False)):
            return [name for part, (name, _) in zip(parts, room, strict=False) for _ in range(part)]
    return fill(room, job.workers)
