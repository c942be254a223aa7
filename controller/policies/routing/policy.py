"""The interface of routing policies, the simplest ones, comparisons and explanations of trees.

A policy is a function of a `RoutingProblem`; it returns a tree for each job that uses more than one server::

    def stars(problem: RoutingProblem) -> dict[str, Tree]:
        return {job.name: problem.grow(job, {}) for job in problem.routed}

A policy of your own is named ``path.py:stars``, or a package's entry point of the group ``ina.routing``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from controller.errors import BadSpec
from controller.policies.placement.flows import FlowState, fan_in, racks_of, root_for, steady_state, tidy
from controller.policies.placement.policy import explain as explain_rate
from controller.vocabulary import Job, Topology, Tree
from controller.vocabulary.errors import kind
from controller.vocabulary.files import check_job


@dataclass(frozen=True)
class RoutingProblem:
    """Placed jobs on a cluster. `draws` is the number of random draws of trees; `rng` is for these draws."""

    topology: Topology
    jobs: tuple[Job, ...]
    draws: int = 8
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    @cached_property
    def routed(self) -> tuple[Job, ...]:
        """The jobs that need a tree. Raises BadSpec if a job is not placed."""
        return tuple(job for job in self.jobs if racks_of(self.topology, job) and len(job.hosts) > 1)

    @cached_property
    def roots(self) -> Mapping[str, str]:
        """The root of each routed job, by job (`controller.policies.placement.flows.root_for`)."""
        return {job.name: root_for(self.topology, job) for job in self.routed}

    def grow(self, job: Job, picks: Mapping[str, str], *, spread: bool = False) -> Tree:
        """Return the tree in which every rack's flows go to the rack's switch in `picks`, then to the root.

        Where two paths meet, both follow the first one from there on, so that the result is a tree. A picked
        switch sums if more than one flow arrives there, and the root sums if it can. With `spread`, each path
        is drawn among the shortest paths, as equal-cost multi-path does. Otherwise all jobs use the same
        shortest paths.
        """
        root = self.roots[job.name]
        ways = {
            rack: self._way(rack, picks.get(rack, root), root, spread=spread)
            for rack in racks_of(self.topology, job)
        }
        return self.merged(job, ways, picks.values())

    def merged(self, job: Job, ways: Mapping[str, Sequence[str]], picked: Collection[str]) -> Tree:
        """Return the tree of the racks' ways to the root, where the `picked` switches and the root sum."""
        root = self.roots[job.name]
        parents: dict[str, str] = {}
        for way in ways.values():
            for node, above in pairwise(way):
                if node in parents:
                    break
                parents[node] = above
        chosen = {name for name in (root, *picked) if name == root or name in parents}
        return tidy(self.topology, job, Tree(root, parents, self._capable(chosen)))

    def _way(self, start: str, via: str, end: str, *, spread: bool) -> list[str]:
        leg = self._drawn_path if spread else self.topology.way
        return without_loops([*leg(start, via)[:-1], *leg(via, end)])

    def _drawn_path(self, start: str, end: str) -> list[str]:
        """Return a random one of the shortest paths from `start` to `end`, both included."""
        found = [start]
        while found[-1] != end:
            found.append(self.rng.choice(self.nearer(found[-1], end)))
        return found

    def nearer(self, node: str, end: str) -> list[str]:
        """Return the neighbours of the switch `node` that are nearer to `end` than `node` is."""
        hops, number = self.topology.hops(end), self.topology.number_of
        around = self.topology.neighbours[node]
        return [other for other in around if other in number and hops[number[other]] < hops[number[node]]]

    def summing_everywhere(self, job: Job, tree: Tree) -> Tree:
        """Return the tree, with all switches summing that can sum and at which flows meet."""
        return tidy(self.topology, job, replace(tree, aggregators=self._capable(tree.switches)))

    def _capable(self, names: Collection[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.topology.switch[name].aggregates)

    def evaluate(self, trees: Mapping[str, Tree]) -> FlowState:
        """Return the steady state of the jobs on these trees: rates in bits per second, and loads."""
        return steady_state(self.topology, with_trees(self.jobs, trees))


Policy = Callable[[RoutingProblem], Mapping[str, Tree]]


def with_trees(jobs: Sequence[Job], trees: Mapping[str, Tree]) -> list[Job]:
    """Return the jobs with these trees."""
    return [replace(job, tree=trees[job.name]) if job.name in trees else job for job in jobs]


def score(state: FlowState) -> tuple[float, float]:
    """Return the score of trees (higher is better): the lowest rate of any job, then the sum of all rates."""
    found = zip(state.jobs, state.steady.rate_bps, strict=True)
    rates = [rate for job, rate in found if len(job.hosts) > 1]
    return (round(min(rates, default=0.0), 3), sum(rates))


def check(problem: RoutingProblem, trees: Mapping[str, Tree]) -> Mapping[str, Tree]:
    """Return the trees of a policy. Raises BadSpec if a job has no tree, or an impossible one."""
    if not isinstance(trees, Mapping):
        raise BadSpec(f"the policy's result is {kind(trees)}; it must be a mapping of trees by job")
    for job in problem.routed:
        if job.name not in trees:
            raise BadSpec(f"the policy returned no tree for {job.name!r}")
        if not isinstance(trees[job.name], Tree):
            raise BadSpec(f"the policy's tree for {job.name!r} is {kind(trees[job.name])}; it must be a Tree")
        check_job(replace(job, tree=trees[job.name]), problem.topology)
        if unable := [n for n in trees[job.name].aggregators if not problem.topology.switch[n].aggregates]:
            raise BadSpec(f"the policy's tree sums {job.name!r} at {unable[0]!r}, which has no slots")
    return trees


def without_loops(nodes: Sequence[str]) -> list[str]:
    """Return a path without the parts between two visits of the same node."""
    way: list[str] = []
    for node in nodes:
        if node in way:
            del way[way.index(node) :]
        way.append(node)
    return way


# ---------------------------------------------------------------------------
# Trees to compare with: sums in the racks only (ATP, NSDI'21), on one path or many, and on shortest paths.
#
# O(jobs * switches); `ecmp` is O(jobs * racks * links of a switch * depth).


def tor_only(problem: RoutingProblem) -> dict[str, Tree]:
    """Sum at the root and at the switches that servers are linked to, where these can sum."""
    return {
        job.name: problem.grow(job, {rack: rack for rack in racks_of(problem.topology, job)})
        for job in problem.routed
    }


def ecmp(problem: RoutingProblem) -> dict[str, Tree]:
    """Sum at the top-of-rack switches; each job uses its own random shortest paths, as with ECMP."""
    return {
        job.name: problem.grow(job, {rack: rack for rack in racks_of(problem.topology, job)}, spread=True)
        for job in problem.routed
    }


def ecmp_everywhere(problem: RoutingProblem) -> dict[str, Tree]:
    """Sum at every switch that can sum; each job uses its own random shortest paths."""
    return {
        job.name: problem.summing_everywhere(job, problem.grow(job, {}, spread=True))
        for job in problem.routed
    }


def shortest_path(problem: RoutingProblem) -> dict[str, Tree]:
    """Sum at every switch that can sum on the shortest paths to the root."""
    return {job.name: problem.summing_everywhere(job, problem.grow(job, {})) for job in problem.routed}


def explain(problem: RoutingProblem, trees: Mapping[str, Tree], job: Job) -> list[str]:
    """Return sentences about a job's tree, its rate, the rate's limit, and the rate on shortest paths."""
    if job.name not in trees:
        return [f"{job.name} stays on one server: it needs no tree."]
    tree = trees[job.name]
    fan_ins = fan_in(problem.topology, job, tree)
    near = f"to {job.fallback}" if job.fallback else "to all racks of the job"
    lines = [f"Root {tree.root}: of the switches that can sum, the nearest {near}."]
    for name, parent in tree.parents.items():
        able = problem.topology.switch[name].aggregates
        if name in tree.aggregators:
            role = f"sums {fan_ins[name]} flows"
        elif not able:
            role = f"has no slots and passes {fan_ins[name]} flows on"
        else:
            role = f"could sum, and passes {fan_ins[name]} flows on"
        lines.append(f"{name} {role}, to {parent}.")
    state = problem.evaluate(trees)
    placed = next(each for each in state.jobs if each.name == job.name)
    lines += explain_rate(state, placed)[2:]
    straight = problem.summing_everywhere(job, problem.grow(job, {}))
    if straight == tree:
        return [*lines, "The tree consists of shortest paths."]
    other = problem.evaluate({**trees, job.name: straight})
    rate_bps = other.rate_bps(replace(placed, tree=straight))
    rate = (
        f"the job's gradients would be summed at {rate_bps / 1e9:.4g} Gb/s"
        if math.isfinite(rate_bps)
        else "no link or switch would limit the job's rate"
    )
    return [*lines, f"On shortest paths to the same root {rate}."]
