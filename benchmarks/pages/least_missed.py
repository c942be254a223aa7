"""Deadlines that no policy can meet: a lower bound of the misses of a workload, by integer programming.

Jobs with deadlines have the cluster for themselves, are stopped, split over time and moved for nothing, and
know what will arrive; links and switches that several jobs share hold any number of them. What is left holds
for every policy:

- a job runs for at most as long as time passes, between its arrival and its deadline;
- its iterations take at least as long as on the best place that one of its size can have: on one server
  nothing is sent; on more, the slowest of its servers' links carries its gradients, and the link of the
  fallback server all of its servers' where no switch sums;
- all jobs together use no more GPUs than there are, and those that send at the fastest rate no more than
  there are behind the fastest links.

Whole jobs are chosen (HiGHS, by scipy) that can meet their deadlines together, as many as possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from controller.core.allocator import goodput
from controller.policies.by_kind import FRAME_BYTES
from controller.vocabulary import Job, Topology


class _Way(NamedTuple):
    """A way to run a job: its number, its time of an iteration, whether it needs the fastest links."""

    job: int
    iteration_s: float
    fastest: bool


def least_missed(jobs: Sequence[Job], topology: Topology) -> int:
    """Return how many of the jobs' deadlines are missed by any policy: a lower bound."""
    due = [job for job in jobs if job.deadline_s is not None]
    if not due:
        return 0
    network = goodput(topology, FRAME_BYTES)
    link_bps = network.link_bps_of
    fastest_bps = max(link_bps.values())
    most = network.gpus, sum(each.gpus for each in network.servers if link_bps[each.name] == fastest_bps)
    ways = [way for number, job in enumerate(due) for way in _ways(number, job, network)]
    times = sorted({job.arrival_s for job in due} | {_due_s(job) for job in due})
    spans = list(pairwise(times))
    count, wide = len(due), len(spans)
    place = {(way, span): count + way * wide + span for way in range(len(ways)) for span in range(wide)}
    rows: list[tuple[dict[int, float], float]] = []  # coefficients, and the most that they may come to
    most_s = np.ones(count + len(place))
    for number, job in enumerate(due):
        own = [at for at, way in enumerate(ways) if way.job == number]
        done = {place[at, span]: -1 / ways[at].iteration_s for at in own for span in range(wide)}
        rows.append((done | {number: float(job.iterations)}, 0.0))
        for span, (begin_s, end_s) in enumerate(spans):
            there = job.arrival_s <= begin_s and end_s <= _due_s(job)
            rows.append(({place[at, span]: 1.0 for at in own}, end_s - begin_s))
            most_s[[place[at, span] for at in own]] = end_s - begin_s if there else 0.0
    for span, (begin_s, end_s) in enumerate(spans):
        for fast, gpus in zip((False, True), most, strict=True):
            using = [at for at, way in enumerate(ways) if way.fastest or not fast]
            held = {place[at, span]: float(due[ways[at].job].gpus) for at in using}
            rows.append((held, gpus * (end_s - begin_s)))
    return count - _most_met(rows, most_s, count)


def _due_s(job: Job) -> float:
    assert job.due_s is not None
    return job.due_s


def _ways(number: int, job: Job, network: Topology) -> list[_Way]:
    """Return the ways to run a job, the fastest first."""
    most = max(server.gpus // job.gpus_per_worker for server in network.servers)
    hosts = math.ceil(job.workers / most)
    if hosts == 1:
        return [_Way(number, job.iteration_at_s(math.inf), False)]
    flows = 1 if any(switch.aggregates for switch in network.switches) else hosts
    rates = sorted({*network.link_bps_of.values()}, reverse=True)
    return [_Way(number, job.iteration_at_s(bps / flows), bps == rates[0]) for bps in rates]


def _most_met(rows: Sequence[tuple[dict[int, float], float]], most: np.ndarray, count: int) -> int:
    """Return how many of the first `count` variables, each 0 or 1, can be 1 under these rows."""
    entries = [(at, where, value) for at, (row, _) in enumerate(rows) for where, value in row.items()]
    at, where, values = (np.array(column) for column in zip(*entries, strict=True))
    matrix = coo_matrix((values, (at, where)), shape=(len(rows), len(most))).tocsr()
    first = np.arange(len(most)) < count
    limits = np.array([limit for _, limit in rows])
    found = milp(
        -first.astype(float),
        constraints=LinearConstraint(matrix, ub=limits + 1e-6 * np.maximum(1.0, limits)),
        bounds=Bounds(0.0, most),
        integrality=first.astype(int),
    )
    return math.floor(-float(found.mip_dual_bound) + 1e-6)
