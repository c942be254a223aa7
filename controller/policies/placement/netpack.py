"""Placement by the value of servers in the steady state (NetPack, ASPLOS'24, and the survey article).

The value of k workers on a server is ``k · b - c - f · (room - k)``. Here b is the rate that one more flow
would get on the server's link, relative to the fastest link; it follows from the water-filling of the running
jobs. c is the price of a flow, f is the price of an unused GPU, and room is the number of workers for which
the server has free GPUs. Only the servers with the fastest links that together have enough room are
considered, because one slow link slows down the whole job. Dynamic programming finds the best servers for w
workers::

    best[i][w] = max over k of best[i-1][w-k] + value(server i, k)

The program runs once for each of the racks with most value, and once for all of these racks together, with a
price for each rack used. Each result is a candidate. A water-filling of each candidate, with the jobs at its
switches, determines the best candidate. The paper's pseudo-code is not public; the article gives the three
steps, and the prices are ours.

Complexity: O(servers + candidates · (workers² + events of the jobs near it)).

>>> import random
>>> from controller.vocabulary import fabrics
>>> racks = fabrics.leaf_spine(2, 2, 3, fabrics.Parts(gpus=2))
>>> job = Job(name="a", workers=5, layers_bytes=(1000,), compute_s=0.1)
>>> netpack(PlacementProblem(racks, (), random.Random(0)), job)
['h1', 'h1', 'h2', 'h2', 'h3']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from controller.policies.placement.flows import speed, steady_state
from controller.policies.placement.policy import PlacementProblem, settle
from controller.vocabulary import Job

FLOW, LEFT, RACK = 0.5, 0.02, 1.0
"""Prices of a flow, of an unused GPU on a server of the job, and of a rack. The unit is the value of a worker
that gets the full rate of the fastest link."""

RACKS = 4
"""Minimum number of racks considered for a job; they also have room for at least twice its workers."""


class _Choice(NamedTuple):
    name: str
    room: int
    bandwidth: float


def netpack(problem: PlacementProblem, job: Job) -> list[str] | None:
    """Return the servers of highest value for a job; None if there is no room."""
    room = problem.room(job)
    if sum(room.values()) < job.workers:
        return None
    alone = [name for name, count in room.items() if count >= job.workers]
    if alone:
        link_bps = problem.topology.link_bps_of
        return [min(alone, key=lambda name: (link_bps[name], room[name]))] * job.workers
    most = job.gpus * speed(job, problem.topology.fastest_bps)
    best, chosen = -np.inf, None
    for servers in _candidates(problem, room, job.workers):
        value = gain(problem, job, servers)
        if value > best:
            best, chosen = value, servers
        if best >= most * (1 - 1e-9):
            break  # no placement can be better
    return chosen


def _candidates(problem: PlacementProblem, room: dict[str, int], workers: int) -> list[list[str]]:
    """Return placements of a job to compare, on the servers with the fastest links that have enough room.

    Servers with slower links are left out: one slow link slows down the whole job, which a sum of values over
    servers cannot express.
    """
    link_bps = problem.topology.link_bps_of
    for least in sorted({link_bps[name] for name in room}, reverse=True):
        fast = {name: count for name, count in room.items() if link_bps[name] >= least}
        if sum(fast.values()) >= workers:
            break
    racks = _racks(problem, fast, workers)
    found = [_best(rack, workers) for rack in racks]
    if len(racks) > 1:
        found.append(_best_across(racks, workers))
    return [placed for placed in found if placed is not None]


def gain(problem: PlacementProblem, job: Job, servers: Sequence[str]) -> float:
    """Return the worth (`worth`) of a job that is placed on these servers, with a tree of shortest paths."""
    return worth(problem, settle(problem, job, servers))


def worth(problem: PlacementProblem, placed: Job, *, measured: bool = False) -> float:
    """Return by how much a placed job increases the number of GPUs that compute.

    The job computes with its GPUs, but delays other jobs, whose GPUs then compute less. All numbers of GPUs
    are averages over time. Only running jobs that use a switch of the job's tree are considered: the function
    needs one water-filling, or two.

    Args:
        problem: The cluster and the running jobs. Its `values` cache the worth of the running jobs alone.
        placed: The job, with servers and tree.
        measured: See `steady_state`; must be the same in all calls with one problem.
    """
    if placed.tree is None:
        return placed.gpus * speed(placed, float("inf"))
    switches = {*placed.tree.switches}
    crossing, values = problem.crossing, problem.values
    near = tuple(
        number
        for number, other in enumerate(crossing)
        if other.tree is not None and not switches.isdisjoint(other.tree.switches)
    )
    beside = [crossing[number] for number in near]
    before = values.get(near)
    if before is None:
        before = values[near] = (
            steady_state(problem.topology, beside, measured=measured).value if beside else 0.0
        )
    return steady_state(problem.topology, [*beside, placed], measured=measured).value - before


def _racks(problem: PlacementProblem, room: dict[str, int], workers: int) -> list[list[_Choice]]:
    """Return the best servers of each of the racks with the highest value for this number of workers.

    There are `RACKS` such racks, or more if `RACKS` racks have no room for twice this number of workers.
    """
    racks: dict[str, list[_Choice]] = {}
    flows = Counter(host for other in problem.running if len(other.hosts) > 1 for host in other.hosts)
    busy, link_bps = problem.busy, problem.topology.link_bps_of
    fastest_bps = max(link_bps[name] for name in room)
    rack_of, neighbours = problem.topology.rack_of, problem.topology.neighbours
    for name, count in room.items():
        rack = rack_of[name]
        left = max(1 - busy[neighbours[name][rack]], 1 / (1 + flows[name]))
        unlimited = float(link_bps[name] == fastest_bps)
        bandwidth = left * link_bps[name] / fastest_bps if fastest_bps < np.inf else left * unlimited
        racks.setdefault(rack, []).append(_Choice(name, count, bandwidth))
    value = {rack: _value_of(servers, workers) for rack, servers in racks.items()}
    chosen: list[list[_Choice]] = []
    held = 0
    for rack in sorted(racks, key=lambda rack: -value[rack]):
        if len(chosen) >= RACKS and held >= 2 * workers:
            break
        chosen.append(_pruned(racks[rack], workers))
        held += sum(each.room for each in racks[rack])
    return chosen


def _value_of(servers: Iterable[_Choice], workers: int) -> float:
    """Return the estimated value of the best `servers` of a rack for this number of workers."""
    value, left = 0.0, workers
    for each in sorted(servers, key=lambda each: -each.bandwidth * each.room):
        count = min(left, each.room)
        value += count * each.bandwidth - FLOW
        left -= count
        if not left:
            return value
    return value - left


def _pruned(servers: Iterable[_Choice], workers: int) -> list[_Choice]:
    """Return the servers worth considering: of servers with equal room, the ones with most bandwidth.

    Of servers with equal room, no more are kept than `workers` workers can use.
    """
    by_room: dict[int, list[_Choice]] = {}
    for each in sorted(servers, key=lambda each: -each.bandwidth):
        same = by_room.setdefault(each.room, [])
        if len(same) <= workers // each.room:
            same.append(each)
    return [each for same in by_room.values() for each in same]


def _extend(best: np.ndarray, server: _Choice) -> tuple[np.ndarray, np.ndarray]:
    """Extend the best values by one more server of the dynamic program.

    Returns two arrays by number of workers: the best value if `server` may be used, and the number of workers
    on `server` in that case.
    """
    workers = len(best) - 1
    after, taken = best.copy(), np.zeros(workers + 1, dtype=np.int64)
    for k in range(1, min(server.room, workers) + 1):
        value = k * server.bandwidth - FLOW - LEFT * (server.room - k)
        with_k = best[: workers + 1 - k] + value
        better = with_k > after[k:]
        after[k:][better] = with_k[better]
        taken[k:][better] = k
    return after, taken


def _nothing(workers: int) -> np.ndarray:
    best = np.full(workers + 1, -np.inf)
    best[0] = 0.0
    return best


def _best(servers: Sequence[_Choice], workers: int) -> list[str] | None:
    """Return each worker's server, the best of `servers`; None if these have too little room."""
    best, choices = _nothing(workers), []
    for server in servers:
        best, taken = _extend(best, server)
        choices.append(taken)
    if best[workers] == -np.inf:
        return None
    return _trace([(server.name, taken) for server, taken in zip(servers, choices, strict=True)], workers)


def _trace(steps: Sequence[tuple[str, np.ndarray]], workers: int) -> list[str]:
    """Return each worker's server, by tracing back the choices of the dynamic program.

    `steps` has the servers in the order in which they were considered, each with the number of workers chosen
    for it, by total number of workers.
    """
    servers: list[str] = []
    for name, taken in reversed(steps):
        count = int(taken[workers - len(servers)])
        servers += [name] * count
    return servers[::-1]


def _best_across(racks: Sequence[Sequence[_Choice]], workers: int) -> list[str] | None:
    """Return each worker's server in several racks; each rack used costs `RACK`. None: too little room."""
    best = _nothing(workers)
    racks_so_far: list[tuple[list[tuple[str, np.ndarray]], np.ndarray]] = []
    for rack in racks:
        inner, steps = best - RACK, []
        for server in rack:
            inner, taken = _extend(inner, server)
            steps.append((server.name, taken))
        entered = inner > best
        best = np.where(entered, inner, best)
        racks_so_far.append((steps, entered))
    if best[workers] == -np.inf:
        return None
    servers: list[str] = []
    for steps, entered in reversed(racks_so_far):
        left = workers - len(servers)
        if entered[left]:
            servers = _trace(steps, left) + servers
    return servers
