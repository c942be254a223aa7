"""The best placement of a job, and the best trees of shortest paths, by exhaustive search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from controller.policies.placement.flows import racks_of, steady_state
from controller.policies.placement.policy import PlacementProblem, settle
from controller.policies.routing.grid import candidates
from controller.policies.routing.policy import RoutingProblem, score, without_loops
from controller.vocabulary import Job, Tree


def best_placement(problem: PlacementProblem, job: Job) -> list[str] | None:
    """Return the placement with which most GPUs compute; None if there is no room."""
    room = problem.room(job)
    best: tuple[float, list[str]] | None = None
    for servers in _deals(list(room.items()), job.workers):
        jobs = (*problem.running, settle(problem, job, servers))
        value = steady_state(problem.topology, jobs).value
        if best is None or value > best[0]:
            best = (value, servers)
    return None if best is None else best[1]


def _deals(room: Sequence[tuple[str, int]], workers: int) -> Iterator[list[str]]:
    if workers == 0:
        yield []
    elif room:
        (name, count), *others = room
        for here in range(min(count, workers), -1, -1):
            yield from ([name] * here + rest for rest in _deals(others, workers - here))


def _ways(problem: RoutingProblem, start: str, via: str, end: str) -> Iterator[list[str]]:
    """Yield all shortest paths from `start` over `via` to `end`, without loops, each once."""
    legs = itertools.product(_paths(problem, start, via), _paths(problem, via, end))
    yield from map(list, dict.fromkeys(tuple(without_loops([*a[:-1], *b])) for a, b in legs))


def _paths(problem: RoutingProblem, start: str, end: str) -> list[list[str]]:
    """Return all shortest paths from `start` to `end`, both included."""
    if start == end:
        return [[end]]
    return [[start, *rest] for above in problem.nearer(start, end) for rest in _paths(problem, above, end)]


def best_trees(problem: RoutingProblem) -> dict[str, Tree]:
    """Return the trees of shortest paths whose lowest rate is highest."""
    racks = [(job, rack) for job in problem.routed for rack in racks_of(problem.topology, job)]
    choices = [
        [
            (pick, way)
            for pick in candidates(problem, job, rack)
            for way in _ways(problem, rack, pick, problem.roots[job.name])
        ]
        for job, rack in racks
    ]
    best: tuple[tuple[float, float], dict[str, Tree]] | None = None
    for chosen in itertools.product(*choices):
        ways: dict[str, dict[str, list[str]]] = {job.name: {} for job in problem.routed}
        picked: dict[str, list[str]] = {job.name: [] for job in problem.routed}
        for (job, rack), (pick, way) in zip(racks, chosen, strict=True):
            ways[job.name][rack] = way
            picked[job.name].append(pick)
        trees = {job.name: problem.merged(job, ways[job.name], picked[job.name]) for job in problem.routed}
        wider = {job.name: problem.summing_everywhere(job, trees[job.name]) for job in problem.routed}
        for candidate in (trees, wider):
            worth = score(problem.evaluate(candidate))
            if best is None or worth > best[0]:
                best = (worth, candidate)
    return {} if best is None else best[1]
