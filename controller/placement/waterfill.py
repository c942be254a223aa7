"""Resulting rates of jobs that share links and switch memory: water-filling (NetPack, ASPLOS'24).

All jobs' rates rise together from zero. A link carries every flow on it, ``Σ flows_jl · x_j <= C_l``; memory
for sums is used in proportion to rate, ``Σ x_j · RTT <= M_s``. The first resource to fill freezes its jobs,
and the other rates continue to rise. There are two models of full memory:

- ``freeze``: its jobs freeze, as jobs that sum in private regions must;
- ``spill``: their rates continue to rise, and the excess passes unsummed, with all its flows, to the next
  switch that has memory left, or to the job's fallback server (ATP, NetPack).

The result is exact: between two events every load is a straight line, and the next event is where the first
line meets its capacity. With ``freeze`` the rates are max-min fair. A job of several trees sends a fixed
share of its rate through each, and freezes with the first resource of any.

Complexity: O(events · (resources + nodes that the event affects)); there is at most one event per resource.

>>> two_links = Flows.of(jobs=3, link_bps=[10.0, 4.0], nodes=[
...     Node(job=0, link=0), Node(job=1, link=0), Node(job=1, link=1), Node(job=2, link=1)])
>>> [float(rate) for rate in waterfill(two_links).rate_bps]
[8.0, 2.0, 2.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reading = Literal["spill", "freeze"]

NONE = -1
_SAME = 1 + 1e-12
"""Events closer than this, relatively, are one."""


class Node(NamedTuple):
    """A node of a job's tree, with the link up from it; without `pool` it forwards without summing.

    Parents come before their children. `source` is the flow that begins here: 1 for a server. `kept` is the
    part of a sum that goes up: 0 for a root that sends results down itself. `back` is the link on which
    results come down. `held` is how long a slot is held, relative to the time assumed by the pool's rate.
    """

    job: int
    link: int = NONE
    back: int = NONE
    parent: int = NONE
    pool: int = NONE
    source: float = 1.0
    kept: float = 1.0
    share: float = 1.0
    held: float = 1.0


@dataclass(frozen=True)
class Flows:
    """Trees of all jobs as arrays over nodes; a job's nodes follow each other, jobs in order."""

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
    share: Floats
    held: Floats

    @classmethod
    def of(
        cls,
        *,
        jobs: int,
        link_bps: Sequence[float],
        nodes: Sequence[Node] | Floats,
        pool_bps: Sequence[float] = (),
        limit_bps: Sequence[float] | None = None,
    ) -> Flows:
        """Return the arrays of these nodes.

        Args:
            jobs: Number of jobs.
            link_bps: Capacity of each link, bits per second.
            nodes: The nodes of all jobs, in the jobs' order, parents before children; or rows of their
                fields.
            pool_bps: Capacity of each pool, bits per second.
            limit_bps: The highest rate that each job can use, bits per second; None: no limits.
        """
        columns = dict(
            zip(Node._fields, np.array(nodes, dtype=np.float64).reshape(-1, len(Node._fields)).T, strict=True)
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
            share=columns["share"],
            held=columns["held"],
        )


@dataclass(frozen=True)
class Steady:
    """The result of a water-filling.

    `rate_bps` is infinite for a job without a limit. `bound_by` is the resource that froze each job: a
    link's number, or a pool's plus the number of links, -1 for its own limit or for none. `load_bps` is the
    load of links and pools; `spilled_at_bps` the level at which each pool was full, infinite if never.
    """

    rate_bps: Floats
    bound_by: Ints
    load_bps: Floats
    spilled_at_bps: Floats


def waterfill(flows: Flows, reading: Reading = "spill") -> Steady:
    """Return the rates at which all jobs are frozen."""
    return _Filling(flows, reading).run()


class _Filling:
    """One run. The load of a resource when all active jobs have risen to t is base + slope · t."""

    def __init__(self, flows: Flows, reading: Reading) -> None:
        self.flows, self.reading = flows, reading
        self.links, self.pools = len(flows.link_bps), len(flows.pool_bps)
        self.nowhere = self.links + self.pools  # what has no link or pool spends an unlimited one
        self.capacity = np.concatenate([flows.link_bps, flows.pool_bps, [np.inf]])
        self.base = np.zeros(self.nowhere + 1)
        self.slope = np.zeros(self.nowhere + 1)
        self.users = np.zeros(self.nowhere + 1, dtype=np.int64)
        self.up = np.where(flows.link >= 0, flows.link, self.nowhere)
        self.down = np.where(flows.back >= 0, flows.back, self.nowhere)
        self.memory = np.where(flows.pool >= 0, flows.pool + self.links, self.nowhere)
        self.summing = flows.pool >= 0
        self.first = np.searchsorted(flows.job, np.arange(flows.jobs + 1))
        self.inflow, self.out = self._flows_at_rest()
        self._index()
        self.active = np.ones(flows.jobs, dtype=bool)
        self.rate = np.full(flows.jobs, np.inf)
        self.bound = np.full(flows.jobs, NONE, dtype=np.int64)
        self.full = np.full(self.pools, np.inf)
        self._add(np.arange(len(flows.job)), 0.0, +1)

    def _flows_at_rest(self) -> tuple[Floats, Floats]:
        """Return the flows into and out of each node while all memory is free."""
        parent = self.flows.parent
        depth = np.zeros(len(parent), dtype=np.int64)
        above = parent
        while (inner := above >= 0).any():
            depth += inner
            above = np.where(inner, parent[above], NONE)
        inflow = self.flows.source.copy()
        out = np.zeros(len(parent))
        for level in range(int(depth.max(initial=0)), -1, -1):
            here = np.flatnonzero(depth == level)
            out[here] = np.where(self.summing[here], self.flows.kept[here], inflow[here])
            below = here[parent[here] >= 0]
            np.add.at(inflow, parent[below], out[below])
        return inflow, out

    def _index(self) -> None:
        """Sort the nodes by the resources that they use, to find those of one."""
        nodes = np.tile(np.arange(len(self.up)), 3)
        resources = np.concatenate([self.up, self.down, self.memory])
        order = np.argsort(resources, kind="stable")
        self.nodes_by_resource = nodes[order]
        self.begin = np.searchsorted(resources[order], np.arange(self.nowhere + 2))

    def run(self) -> Steady:
        level = 0.0
        while self.active.any():
            with np.errstate(divide="ignore", invalid="ignore"):
                times = np.where(self.users > 0, (self.capacity - self.base) / self.slope, np.inf)
            limits = np.where(self.active, self.flows.limit_bps, np.inf)
            level = max(level, min(float(times.min()), float(limits.min())))
            if level == np.inf:
                break
            reached = np.flatnonzero(self.active & (limits <= level * _SAME))
            if reached.size:
                self._freeze(reached, level, NONE)
                continue
            full = np.flatnonzero(times <= level * _SAME)
            if full[0] < self.links:
                self._fill_links(full[full < self.links], level)
            else:
                self._fill_pool(int(full[0]) - self.links, level)
        return Steady(self.rate, self.bound, self._load(level), self.full)

    def _load(self, level: float) -> Floats:
        at = np.where(self.users > 0, self.slope * (level if np.isfinite(level) else 0.0), 0.0)
        return (self.base + at)[: self.nowhere]

    def _users_of(self, resource: int) -> Ints:
        """Return the nodes of active jobs that are at a resource."""
        nodes = self.nodes_by_resource[self.begin[resource] : self.begin[resource + 1]]
        return nodes[self.active[self.flows.job[nodes]]]

    def _fill_links(self, links: Ints, level: float) -> None:
        """Have links be full, all at this level."""
        found = [self._users_of(int(link)) for link in links]
        nodes = np.concatenate(found)
        of_link = np.repeat(links, [len(each) for each in found])
        sending = self.out[nodes] > 0
        jobs, at = np.unique(self.flows.job[nodes[sending]], return_index=True)
        self._freeze(jobs, level, of_link[sending][at])

    def _fill_pool(self, pool: int, level: float) -> None:
        """Have a switch's memory be full."""
        nodes = self._users_of(self.links + pool)
        nodes = nodes[self.summing[nodes]]
        self.full[pool] = level
        if self.reading == "freeze":
            self._freeze(np.unique(self.flows.job[nodes]), level, self.links + pool)
        else:
            self._spill(nodes, level)

    def _freeze(self, jobs: Ints, level: float, resource: int | Ints) -> None:
        counts = self.first[jobs + 1] - self.first[jobs]
        starts = np.repeat(self.first[jobs] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        self._add(starts + np.arange(counts.sum()), level, -1)
        self.active[jobs] = False
        self.rate[jobs] = level
        self.bound[jobs] = resource

    def _spill(self, nodes: Ints, level: float) -> None:
        """Let the excess pass these nodes unsummed; no two of them belong to the same tree."""
        self._add(nodes, level, -1)
        self.summing[nodes] = False
        delta = self.inflow[nodes] - self.flows.kept[nodes]
        while nodes.size:
            self.out[nodes] += delta
            self._add(nodes, level, +1)
            inner = self.flows.parent[nodes] >= 0
            nodes, delta = self.flows.parent[nodes[inner]], delta[inner]
            self.inflow[nodes] += delta
            passing = ~self.summing[nodes]
            nodes, delta = nodes[passing], delta[passing]
            self._add(nodes, level, -1)

    def _add(self, nodes: Ints, level: float, sign: int) -> None:
        """Start or stop (`sign`) raising the loads of the resources that `nodes` use."""
        out, share = self.out[nodes], self.flows.share[nodes]
        for resources, flows in (
            (self.up[nodes], share * out),
            (self.down[nodes], share * np.minimum(out, 1.0)),
            (self.memory[nodes], share * self.flows.held[nodes] * self.summing[nodes]),
        ):
            np.add.at(self.slope, resources, sign * flows)
            np.add.at(self.base, resources, -sign * flows * level)
            np.add.at(self.users, resources, sign * (flows > 0))
