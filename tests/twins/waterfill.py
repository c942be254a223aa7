"""Water-filling: the twin of ``controller/_native/waterfill.c``; see `placement.waterfill`."""

from __future__ import annotations

import numpy as np

from controller.policies.placement.flows import NONE, SAME, Floats, Ints, JobFlows, SteadyRates


def waterfill(flows: JobFlows) -> SteadyRates:
    """Return the rates at which all jobs are frozen."""
    return Filling(flows).run()


class Filling:
    """One run. The load of a resource when all active jobs have risen to t is base + slope · t."""

    def __init__(self, flows: JobFlows) -> None:
        self.flows = flows
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

    def run(self) -> SteadyRates:
        level = 0.0
        while self.active.any():
            with np.errstate(divide="ignore", invalid="ignore"):
                times = np.where(self.users > 0, (self.capacity - self.base) / self.slope, np.inf)
            limits = np.where(self.active, self.flows.limit_bps, np.inf)
            level = max(level, min(float(times.min()), float(limits.min())))
            if level == np.inf:
                break
            reached = np.flatnonzero(self.active & (limits <= level * SAME))
            if reached.size:
                self._freeze(reached, level, NONE)
                continue
            full = np.flatnonzero(times <= level * SAME)
            if full[0] < self.links:
                self._fill_links(full[full < self.links], level)
            else:
                self._fill_pool(int(full[0]) - self.links, level)
        return SteadyRates(self.rate, self.bound, self._load(level), self.full)

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
        out = self.out[nodes]
        for resources, flows in (
            (self.up[nodes], out),
            (self.down[nodes], np.minimum(out, 1.0)),
            (self.memory[nodes], self.flows.held[nodes] * self.summing[nodes]),
        ):
            np.add.at(self.slope, resources, sign * flows)
            np.add.at(self.base, resources, -sign * flows * level)
            np.add.at(self.users, resources, sign * (flows > 0))
