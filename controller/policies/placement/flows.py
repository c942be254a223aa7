"""The flows of placed jobs over a cluster, as input of `waterfill`.

Every link n is two resources, one for each direction: resource 2n from `a` to `b`, and resource 2n + 1 from
`b` to `a`. Every switch that sums is a pool that jobs share; the rate of the pool is the gradient bits that
its slots can sum per round trip. Packets that find no slot go from the root to the job's fallback server, on
the shortest path. The model gives a job without a fallback server one at its root, behind a link that is
never full.

>>> from controller.vocabulary import fabrics
>>> rack = fabrics.star(4)
>>> job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h2"))
>>> other = Job(name="b", workers=2, layers_bytes=(1000,), servers=("h2", "h3"))
>>> steady_state(rack, [job, other]).rate_bps(job) / 1e9
50.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.policies.placement.trees import bottom_up, tree_of, way_to_fallback
from controller.policies.placement.waterfill import (
    NONE,
    Floats,
    FlowNode,
    JobFlows,
    SteadyRates,
    waterfill,
)
from controller.vocabulary import Job, Topology


@dataclass(frozen=True)
class FlowState:
    """Running jobs, and the rates of their gradients in a steady state; infinite: nothing limits the rate."""

    topology: Topology
    jobs: tuple[Job, ...]
    steady: SteadyRates

    def rate_bps(self, job: Job) -> float:
        """Return the rate of a job's gradients, bits per second."""
        return float(self.steady.rate_bps[self.jobs.index(job)])

    @property
    def speeds(self) -> list[float]:
        """The fraction of time that each job computes; 1: communication never delays the job."""
        return [speed(job, float(rate)) for job, rate in zip(self.jobs, self.steady.rate_bps, strict=True)]

    @property
    def value(self) -> float:
        """Number of GPUs that compute, on average over time: the objective of placements."""
        gpus = (job.gpus for job in self.jobs)
        return sum(count * part for count, part in zip(gpus, self.speeds, strict=True))

    @property
    def load_bps(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Load of each direction of each link, bits per second, shape (2 * links,), two entries per link."""
        return self.steady.load_bps[: 2 * len(self.topology.links)]

    def resource(self, number: int) -> str:
        """Return a description of resource `number`: a link and its direction, or "nothing" for `NONE`."""
        if number == NONE:
            return "nothing"
        link = self.topology.links[number // 2]
        ends = (link.a, link.b) if number % 2 == 0 else (link.b, link.a)
        return f"the link {ends[0]} to {ends[1]}"


def speed(job: Job, rate_bps: float) -> float:
    """Return the fraction of time that a job computes if its gradients are summed at this rate."""
    if job.compute_s == 0:
        return 0.0
    return job.compute_s / job.iteration_at_s(rate_bps)


def steady_state(topology: Topology, jobs: Sequence[Job], *, measured: bool = False) -> FlowState:
    """Return placed jobs with the resulting rates of their gradients. Raises BadSpec if a job is not placed.

    Args:
        topology: Servers, switches and links.
        jobs: The jobs.
        measured: Whether a job holds its slots for the measured time, `Job.hold_s`, instead of a round trip.
    """
    pools = _held_as_measured(topology) if measured and any(job.hold_s is not None for job in jobs) else None
    return FlowState(topology, tuple(jobs), waterfill(flows_of(topology, jobs, pools)))


@dataclass(frozen=True, slots=True)
class Pools:
    """Pools of switch memory in which jobs sum; by default each switch is one pool.

    `rate_bps` has the rate of each pool. `of(job, switch)` returns the number of the pool that a job uses at
    a switch. The rates assume a certain time for which a packet holds a slot; `held(job, switch)` returns the
    ratio of the job's time to this time.
    """

    rate_bps: Sequence[float]
    of: Callable[[Job, str], int]
    held: Callable[[Job, str], float] = lambda job, at: 1.0


def _held_as_measured(topology: Topology) -> Pools:
    def held(job: Job, at: str) -> float:
        rtt_s = topology.switch[at].rtt_s
        return 1.0 if job.hold_s is None else job.hold_s / rtt_s

    rates = [switch.aggregation_bps for switch in topology.switches]
    return Pools(rates, lambda job, at: topology.number_of[at], held)


def flows_of(topology: Topology, jobs: Sequence[Job], pools: Pools | None = None) -> JobFlows:
    """Return the flows of placed jobs, with one tree for each job; `pools` None: each switch is one pool."""
    crossing = [number for number, job in enumerate(jobs) if len(job.hosts) > 1]
    grown = [_grown(topology, jobs[number]) for number in crossing]
    nodes = np.concatenate(grown) if grown else np.empty((0, len(FlowNode._fields)))
    counts = [len(each) for each in grown]
    nodes[:, _JOB] = np.repeat(crossing, counts)
    first = np.repeat(np.cumsum([0, *counts[:-1]]), counts) if grown else np.empty(0)
    nodes[:, _PARENT] += np.where(nodes[:, _PARENT] >= 0, first, 0)
    link_bps, pool_bps = _capacities(topology)
    if pools is not None:
        pool_bps = np.asarray(pools.rate_bps, dtype=np.float64)
        for node in np.flatnonzero(nodes[:, _POOL] >= 0).tolist():
            job, at = jobs[int(nodes[node, _JOB])], topology.switches[int(nodes[node, _POOL])].name
            nodes[node, _POOL], nodes[node, _HELD] = pools.of(job, at), pools.held(job, at)
    return JobFlows.of(jobs=len(jobs), link_bps=link_bps, nodes=nodes, pool_bps=pool_bps)


def _capacities(topology: Topology) -> tuple[Floats, Floats]:
    """Return the rates of all links' directions and of all switches' memory; cached with the topology."""
    known: tuple[Floats, Floats] | None = vars(topology).get("_capacities")
    if known is None:
        link_bps = np.repeat(np.array([link.capacity_bps for link in topology.links], dtype=np.float64), 2)
        pool_bps = np.array([switch.aggregation_bps for switch in topology.switches], dtype=np.float64)
        known = vars(topology)["_capacities"] = link_bps, pool_bps
    return known


_JOB, _PARENT, _POOL, _HELD = (FlowNode._fields.index(name) for name in ("job", "parent", "pool", "held"))


def _grown(topology: Topology, job: Job) -> Floats:
    """Return an array with a row for each `FlowNode` of a job; cached with the job.

    Each switch is a pool of its own, numbered like the switches. The cache is useful because the same placed
    jobs are looked up again and again, together with other jobs.
    """
    known = vars(job).get("_grown")
    if known is None or known[0] is not topology:
        known = vars(job)["_grown"] = (topology, np.array(_grow(topology, job), dtype=np.float64))
    rows: Floats = known[1]
    return rows


def _grow(topology: Topology, job: Job) -> list[FlowNode]:
    """Return a job's nodes: the path to its fallback server, the tree's switches, and the job's servers."""
    nodes: list[FlowNode] = []
    tree = tree_of(topology, job)
    way = list(way_to_fallback(topology, job, tree))
    at: dict[str, int] = {}
    for position, name in enumerate(reversed(way[1:])):
        above = way[len(way) - position] if position else (job.fallback or "")
        link, back = directions(topology, name, above)
        at[name] = len(nodes)
        parent = len(nodes) - 1 if position else NONE
        nodes.append(FlowNode(0, link, back, parent, source=0.0))
    outer = at.get(way[1], NONE) if len(way) > 1 else NONE
    place: dict[str, int] = {}
    for name in reversed(bottom_up(tree)):
        root = name == tree.root
        above = (way[1] if len(way) > 1 else job.fallback or "") if root else tree.parents[name]
        link, back = directions(topology, name, above) if above else (NONE, NONE)
        place[name] = len(nodes)
        sums = job.aggregate and name in tree.aggregators
        pool = topology.number_of[name] if sums else NONE
        parent = outer if root else place[tree.parents[name]]
        nodes.append(FlowNode(0, link, back, parent, pool, source=0.0, kept=0.0 if root else 1.0))
    for server in job.hosts:
        rack = topology.rack_of[server]
        nodes.append(FlowNode(0, *directions(topology, server, rack), place[rack]))
    return nodes


def directions(topology: Topology, a: str, b: str) -> tuple[int, int]:
    """Return the numbers of a link's two resources: from `a` to `b`, and from `b` to `a`."""
    number = topology.neighbours[a][b]
    forward = 2 * number if topology.links[number].a == a else 2 * number + 1
    return forward, forward ^ 1
