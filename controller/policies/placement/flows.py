"""Placed jobs on a network: aggregation trees, flows over links, and the resulting rates.

Trees are shortest paths from the jobs' servers to a root. Jobs share links and switch memory; their rates
come from water-filling (NetPack, ASPLOS'24).

The rates x of all jobs rise together from zero. The flows on link l must not exceed its capacity:
``Σ flows_jl · x_j <= C_l``. A job uses the memory of switch s in proportion to its rate:
``Σ x_j · RTT <= M_s``. When a link is full, the rates of its jobs stay constant, and all other rates continue
to rise. When the memory of a switch is full, the rates of its jobs continue to rise: the excess packets pass
unsummed to the next switch with free memory, or to the job's fallback server (ATP, NetPack).

The result is exact: between two events all loads grow linearly, and the next event is the time at which the
first load reaches its capacity. If there is enough memory, the rates are max-min fair.

The algorithm runs in C (`controller._native`); tests compare it with progressive filling in fractions.

Complexity: O(events · (resources + nodes that the event affects)); there is at most one event per resource.

>>> two_links = JobFlows.of(jobs=3, link_bps=[10.0, 4.0], nodes=[
...     FlowNode(job=0, link=0), FlowNode(job=1, link=0), FlowNode(job=1, link=1), FlowNode(job=2, link=1)])
>>> [float(rate) for rate in waterfill(two_links).rate_bps]
[8.0, 2.0, 2.0]

The flows of placed jobs over a cluster, as input of `waterfill`.

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

import ctypes
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller import _native
from controller.errors import BadSpec
from controller.vocabulary import Job, Topology, Tree
from controller.vocabulary.lists import by_key


def tree_of(topology: Topology, job: Job) -> Tree:
    """Return the tree of a placed job: `job.tree`, or else a tree of shortest paths to `root_for`.

    In a tree of shortest paths, every switch sums that can sum and receives more than one contribution.

    Raises BadSpec if the job is not placed.
    """
    if job.tree is not None:
        return job.tree
    racks = racks_of(topology, job)
    root = root_for(topology, job)
    parents = paths_up(racks, root, topology.towards(root))
    can_sum = [name for name in (root, *parents) if topology.switch[name].aggregates]
    return tidy(topology, job, Tree(root, parents, frozenset(can_sum)))


def root_for(topology: Topology, job: Job) -> str:
    """Return the root of a job's tree: the summing switch nearest to the job's fallback server.

    For a job without a fallback server, the root is the summing switch nearest to all racks of the job.
    """
    return best_root(topology, [topology.rack_of[job.fallback]] if job.fallback else racks_of(topology, job))


def racks_of(topology: Topology, job: Job) -> list[str]:
    """Return the switches that a job's servers are linked to, each once. Raises BadSpec without servers."""
    if not job.servers:
        raise BadSpec(f"job {job.name!r} has no servers; place it with ina place, or give servers = [...]")
    return list(dict.fromkeys(topology.rack_of[server] for server in job.hosts))


def best_root(topology: Topology, racks: Collection[str]) -> str:
    """Return the switch with the shortest paths to all `racks`: a switch that sums, if any does.

    Of equally near switches, returns the one with most memory, then the first. O(racks * switches).
    """
    slots = np.array([each.slots for each in topology.switches], dtype=np.int64)
    ways = ways_to(topology, racks)
    if slots.any():
        ways = np.where(slots > 0, ways, ways.max() + 1)
    nearest = np.flatnonzero(ways == ways.min())
    return topology.switches[int(nearest[np.argmax(slots[nearest])])].name


def ways_to(topology: Topology, racks: Iterable[str]) -> NDArray[np.int64]:
    """Return, for each switch, the sum of its distances to all `racks` in links, shape (switches,)."""
    hops = np.array([topology.hops(rack) for rack in racks], dtype=np.int64)
    found: NDArray[np.int64] = hops.sum(axis=0)
    return found


def paths_up(racks: Iterable[str], root: str, above: Mapping[str, str]) -> dict[str, str]:
    """Return the parents of all switches on the paths from `racks` to `root`; `above` has more parents."""
    parents: dict[str, str] = {}
    for node in racks:
        while node != root and node not in parents:
            parents[node] = above[node]
            node = above[node]
    return parents


def tidy(topology: Topology, job: Job, tree: Tree) -> Tree:
    """Return a copy of `tree` in which switches that receive only one contribution forward it unsummed.

    The root still sums if it has memory, because the root sends the results.
    """
    fan_ins = fan_in(topology, job, tree)
    useful = {name for name in tree.aggregators if fan_ins[name] > 1 or name == tree.root}
    return Tree(tree.root, tree.parents, frozenset(useful))


def fan_in(topology: Topology, job: Job, tree: Tree) -> Mapping[str, int]:
    """Return the number of contributions that reach each switch of the tree."""
    found = dict.fromkeys(tree.switches, 0)
    for server in job.hosts:
        found[topology.rack_of[server]] += 1
    for name in bottom_up(tree):
        if name != tree.root and found[name]:
            found[tree.parents[name]] += 1 if name in tree.aggregators else found[name]
    return found


def bottom_up(tree: Tree) -> list[str]:
    """Return the switches of a tree, children before their parents."""
    order = [tree.root]
    children = by_key((parent, child) for child, parent in tree.parents.items())
    for name in order:
        order += children.get(name, ())
    return order[::-1]


def slowest_link_bps(topology: Topology, job: Job, tree: Tree) -> float:
    """Return the rate of the slowest link that the job's flows use, bits per second."""
    pairs = [(server, topology.rack_of[server]) for server in job.hosts] + list(tree.parents.items())
    return min(topology.links[topology.neighbours[child][parent]].capacity_bps for child, parent in pairs)


def way_to_fallback(topology: Topology, job: Job, tree: Tree) -> tuple[str, ...]:
    """Return the switches from a job's root to the switch of its fallback server, both included."""
    return topology.way(tree.root, topology.rack_of[job.fallback] if job.fallback else tree.root)


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NONE = -1


class FlowNode(NamedTuple):
    """A node of the tree of job number `job`: a switch or a server.

    `link` is the number of the link up to the node `parent`, and `back` is the number of the link on which
    results come down. `pool` is the memory in which the node sums; `NONE`: it only forwards. `source` is the
    flow that begins at the node: 1 for a server. `kept` is the part of a sum that goes up: 0 for a root that
    sends results down itself. `held` is the time for which a packet holds a slot, relative to the time that
    the pool's rate assumes. Parents come before their children.
    """

    job: int
    link: int = NONE
    back: int = NONE
    parent: int = NONE
    pool: int = NONE
    source: float = 1.0
    kept: float = 1.0
    held: float = 1.0


@dataclass(frozen=True)
class JobFlows:
    """Trees of all jobs, as arrays over `FlowNode`s in order of job number."""

    jobs: int
    link_bps: Floats
    pool_bps: Floats
    limit_bps: Floats
    job: Ints
    link: Ints
    back: Ints
    parent: Ints
    pool: Ints
    source: Floats
    kept: Floats
    held: Floats

    @classmethod
    def of(
        cls,
        *,
        jobs: int,
        link_bps: Sequence[float] | Floats,
        nodes: Sequence[FlowNode] | Floats,
        pool_bps: Sequence[float] | Floats = (),
        limit_bps: Sequence[float] | None = None,
    ) -> JobFlows:
        """Return the arrays of these nodes.

        Args:
            jobs: Number of jobs.
            link_bps: Capacity of each link, bits per second.
            nodes: The nodes of all jobs, in the jobs' order, parents before children; or an array with a row
                of `FlowNode`'s fields for each node.
            pool_bps: Capacity of each pool, bits per second.
            limit_bps: Maximum rate of each job, bits per second; None: no limits.
        """
        columns = dict(
            zip(
                FlowNode._fields,
                np.array(nodes, dtype=np.float64).reshape(-1, len(FlowNode._fields)).T,
                strict=True,
            )
        )
        numbers = {name: column.astype(np.int64) for name, column in columns.items()}
        return cls(
            jobs=jobs,
            link_bps=np.asarray(link_bps, dtype=np.float64),
            pool_bps=np.asarray(pool_bps, dtype=np.float64),
            limit_bps=np.full(jobs, np.inf) if limit_bps is None else np.asarray(limit_bps, np.float64),
            job=numbers["job"],
            link=numbers["link"],
            back=numbers["back"],
            parent=numbers["parent"],
            pool=numbers["pool"],
            source=columns["source"],
            kept=columns["kept"],
            held=columns["held"],
        )


@dataclass(frozen=True)
class SteadyRates:
    """The result of a water-filling.

    `rate_bps` has the rate of each job, infinite for a job without a limit. `bound_by` has, for each job, the
    number of the link that stopped the rise of the job's rate; -1: the job's own limit or nothing stopped it.
    `load_bps` is the load of links and pools. `spilled_at_bps` has, for each pool, the rate of the jobs at
    which the pool was full, infinite if it never was.
    """

    rate_bps: Floats
    bound_by: Ints
    load_bps: Floats
    spilled_at_bps: Floats


def waterfill(flows: JobFlows) -> SteadyRates:
    """Return the rates of all jobs, their limits and the loads. Raises NativeMissing, and MemoryError."""
    links, pools = len(flows.link_bps), len(flows.pool_bps)
    rates = (flows.link_bps, flows.pool_bps, flows.limit_bps)
    numbers = (flows.job, flows.link, flows.back, flows.parent, flows.pool)
    parts = (flows.source, flows.kept, flows.held)
    columns = [
        *(np.ascontiguousarray(each, dtype=np.float64) for each in rates),
        *(np.ascontiguousarray(each, dtype=np.int64) for each in numbers),
        *(np.ascontiguousarray(each, dtype=np.float64) for each in parts),
    ]
    given = _native.WaterfillFlows(
        *(flows.jobs, len(flows.job), links, pools),
        *(column.ctypes.data for column in columns),
    )
    steady = SteadyRates(
        np.empty(flows.jobs), np.empty(flows.jobs, np.int64), np.empty(links + pools), np.empty(pools)
    )
    into = (steady.rate_bps, steady.bound_by, steady.load_bps, steady.spilled_at_bps)
    if _native.load().waterfill(ctypes.byref(given), *(each.ctypes.data for each in into)):
        raise MemoryError(f"too little memory to compute the rates of {flows.jobs} jobs")
    return steady


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
    return 0.0 if job.compute_s == 0 else job.compute_s / job.iteration_at_s(rate_bps)


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
