"""Aggregation trees by a linear program and randomised rounding (GRID, ToN 31(5), 2023).

Every rack g of a job j, with n servers, may send its flows to any switch s that sums, or straight to the
root. r is the rate per server from the rack to s. y is the rate of the sums that leave s. λ is the rate of a
job. The relaxed program is::

    maximise   min_j λ_j + small · Σ_j λ_j
    such that  λ_j <= Σ_s r_jgs                          for every rack
               r_jgs <= y_js                             sums leave s as fast as flows arrive
               Σ n_jg · r_jgs [l on g→s] + Σ y_js [l on s→root] <= C_l
               Σ_j y_js <= M_s / RTT_s                   memory; at the root Σ_j λ_j

The paper's program has one parameter server and links without limits. This program has every link of the
topology, and several jobs.

In each draw, every rack picks a switch s with probability r / Σ r. Paths that meet are merged, so that the
result is a tree. Water-filling evaluates the tree twice: with sums at the picked switches, and with sums at
all switches of the tree that can sum. Other draws send the flows of all racks straight to the root. In some
draws, all jobs use the same shortest paths; in other draws, each job uses its own random shortest paths, as
with equal-cost multi-path.

The best draw is then refined, which the paper does not do. For each job in turn, trees of new draws are tried
while all other jobs keep their trees; better trees are kept. In small problems (`SMALL` switches, `FEW`
jobs), single branches and single sums of one job or of two jobs are then exchanged until no exchange is
better. Draws only use shortest paths. If links or memory are short, the best trees may have detours or fewer
sums. Roots do not change.

Complexity: one linear program of O(racks · switches) variables per job, solved by HiGHS (scipy), and
O((draws + jobs) · events).

>>> from controller.vocabulary import fabrics
>>> racks = fabrics.leaf_spine(2, 3, 2)
>>> job = Job(name="a", workers=3, layers_bytes=(1000,), servers=("h3", "h5", "h6"), fallback="h1")
>>> sorted(grid(RoutingProblem(racks, (job,)))["a"].aggregators)
['leaf1', 'leaf3', 'spine1']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice, pairwise, product
from typing import Any

import numpy as np

from controller.errors import BadSpec
from controller.policies.placement.flows import directions, paths_up, racks_of, tidy, way_to_fallback
from controller.policies.routing.policy import RoutingProblem, score
from controller.vocabulary import Job, Topology, Tree

DETOUR = 2
"""Number of links by which a path over a switch may be longer than the shortest path."""

MOST = 200_000
"""Maximum number of variables of a linear program. With more, a solver takes hours or fills the memory."""

FREE = 1e4
"""Capacity of an unlimited link in the linear program, in units of the fastest link that has a limit."""

PASSES = 3
"""Number of times that each job gets new random trees, compared while other jobs keep theirs."""

SMALL = 6
"""Maximum number of switches of a cluster for which `_exchanged` tries other branches in each tree."""

FEW = 3
"""Maximum number of routed jobs for which `_exchanged` tries other branches in each tree."""

MOST_EXCHANGED = 2_000
"""Maximum number of trees of a job, or pairs of trees of two jobs, that are tried at a time."""

AROUND = 2
"""Maximum number of switches outside a tree on the new path of an exchanged branch."""

Shares = Mapping[tuple[str, str], Mapping[str, float]]
"""Weights for drawing switches: by job and rack, the rate to each switch in the linear program's solution."""


def grid(problem: RoutingProblem) -> dict[str, Tree]:
    """Return the best trees of all draws. Raises BadSpec if scipy is missing, or there are too many jobs."""
    if not problem.routed:
        return {}
    return best_of_draws(problem, relaxed(problem), passes=PASSES)


def best_of_draws(problem: RoutingProblem, shares: Shares | None, *, passes: int) -> dict[str, Tree]:
    """Return the best trees of all draws, refined.

    Args:
        problem: The placed jobs.
        shares: Weights with which switches are drawn; None: all racks' flows go straight to the root.
        passes: Number of times that each job gets new random trees while all other jobs keep their trees.
    """
    worth, best = _better(problem, ((-1.0, 0.0), {}), _draws(problem, shares))
    for _ in range(passes):
        for job in problem.routed:
            alone = replace(problem, jobs=(job,))
            drawn = (_straight(alone, spread=True), *([_drawn(alone, shares)] if shares else []))
            worth, best = _better(problem, (worth, best), drawn)
    if len(problem.topology.switches) <= SMALL and len(problem.routed) <= FEW:
        worth, best = _exchanged(problem, (worth, best))
    return best


Rated = tuple[tuple[float, float], dict[str, Tree]]
"""Trees by job, preceded by the `score` of all jobs on these trees."""


def _better(problem: RoutingProblem, rated: Rated, others: Iterable[dict[str, Tree]]) -> Rated:
    """Return the best rated trees: `rated`, or `rated` with the trees of one of `others`.

    `others` may have trees for some jobs only. Each of `others` is tried unchanged, and with all switches
    summing that can sum.
    """
    worth, best = rated
    trees = best
    for other in others:
        for candidate in (other, _everywhere(problem, other)):
            exchanged = {**trees, **candidate}
            found = score(problem.evaluate(exchanged))
            if found > worth:
                worth, best = found, exchanged
    return worth, best


def _exchanged(problem: RoutingProblem, rated: Rated) -> Rated:
    """Exchange branches and summing switches until no exchange improves the score; return the rated trees.

    Each exchange changes the trees of one job or of two jobs.
    """
    together = [*((job,) for job in problem.routed), *combinations(problem.routed, 2)]
    at = 0
    while at < len(together):
        names = [job.name for job in together[at]]
        near = [list(_near(problem, job, rated[1][job.name])) for job in together[at]]
        tried = islice(product(*near), MOST_EXCHANGED)
        found = _better(problem, rated, (dict(zip(names, trees, strict=True)) for trees in tried))
        at, rated = (0 if found[0] > rated[0] else at + 1), found
    return rated


def _near(problem: RoutingProblem, job: Job, tree: Tree) -> Iterator[Tree]:
    """Yield variants of a tree that differ in one respect.

    One more switch sums, one switch less sums, or one branch reaches the tree on another path.
    """
    topology, root = problem.topology, tree.root
    for name in tree.switches:
        if topology.switch[name].aggregates:
            yield tidy(topology, job, Tree(root, tree.parents, tree.aggregators ^ {name}))
    for branch in tree.parents:
        for way in _ways_up(topology, tree, [branch]):
            changed = {**tree.parents, **dict(pairwise(way))}
            parents = paths_up(racks_of(topology, job), root, changed)
            yield tidy(topology, job, Tree(root, parents, tree.aggregators & {root, *parents}))


def _ways_up(topology: Topology, tree: Tree, way: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield all extensions of the path `way` that end at a switch of the tree.

    That switch must not be below the start of `way` in the tree. An extension has at most `AROUND` switches
    outside the tree.
    """
    for above in topology.neighbours[way[-1]]:
        if above not in topology.switch or above in way or _passes(tree, above, way[0]):
            continue
        if above in tree.switches:
            yield [*way, above]
        elif len(way) <= AROUND:
            yield from _ways_up(topology, tree, [*way, above])


def _passes(tree: Tree, start: str, name: str) -> bool:
    """Return whether the way from the switch `start` up the tree passes the switch `name`."""
    while start != name and start in tree.parents:
        start = tree.parents[start]
    return start == name


def _draws(problem: RoutingProblem, shares: Shares | None) -> Iterator[dict[str, Tree]]:
    """Yield candidate trees of all jobs, each candidate as the trees by job.

    In some candidates, all racks send straight to the root. If there are `shares`, other candidates use the
    switch with each rack's largest share, or switches drawn in proportion to the shares. The shortest paths
    between these switches are the same for all jobs, or drawn for each job.
    """
    for spread in (False, True):
        yield _straight(problem, spread=spread)
        if shares:
            yield _picked(problem, shares, _largest, spread=spread)
    for number in range(problem.draws):
        yield _straight(problem, spread=True)
        if shares:
            yield _drawn(problem, shares, spread=number % 2 == 1)


def _straight(problem: RoutingProblem, *, spread: bool) -> dict[str, Tree]:
    return {job.name: problem.grow(job, {}, spread=spread) for job in problem.routed}


def _everywhere(problem: RoutingProblem, trees: Mapping[str, Tree]) -> dict[str, Tree]:
    """Return the trees, with all switches summing that can sum."""
    return {
        job.name: problem.summing_everywhere(job, trees[job.name])
        for job in problem.routed
        if job.name in trees
    }


def _largest(parts: Mapping[str, float]) -> str:
    return max(parts, key=lambda name: parts[name])


def _drawn(problem: RoutingProblem, shares: Shares, *, spread: bool = True) -> dict[str, Tree]:
    def pick(parts: Mapping[str, float]) -> str:
        return problem.rng.choices(list(parts), list(parts.values()))[0]

    return _picked(problem, shares, pick, spread=spread)


def _picked(
    problem: RoutingProblem, shares: Shares, pick: Callable[[Mapping[str, float]], str], *, spread: bool
) -> dict[str, Tree]:
    """Return trees in which every rack's flows go to the switch that `pick` chooses by the rack's shares."""
    return {
        job.name: problem.grow(
            job,
            {rack: pick(shares[job.name, rack]) for rack in racks_of(problem.topology, job)},
            spread=spread,
        )
        for job in problem.routed
    }


def candidates(problem: RoutingProblem, job: Job, rack: str) -> list[str]:
    """Return the switches that could sum a rack's flows: the root, and switches with a short detour.

    A detour is at most `DETOUR` links longer than the shortest path.
    """
    topology, root = problem.topology, problem.roots[job.name]
    from_rack, to_root = topology.hops(rack), topology.hops(root)
    at = topology.number_of
    most = from_rack[at[root]] + DETOUR
    near = [
        switch.name
        for number, switch in enumerate(topology.switches)
        if switch.aggregates and from_rack[number] + to_root[number] <= most and switch.name != root
    ]
    return [root, *near]


class _Program:
    """The linear program: columns are variables, rows are sums that are at most a limit."""

    def __init__(self) -> None:
        self.columns = 0
        self.entries: list[tuple[int, int, float]] = []
        self.limits: list[float] = []
        self._named: dict[object, int] = {}

    def variable(self) -> int:
        self.columns += 1
        return self.columns - 1

    def row(self, limit: float) -> int:
        self.limits.append(limit)
        return len(self.limits) - 1

    def named_row(self, name: object, limit: float) -> int:
        """Return the row of a resource; all variables that use this resource share the row."""
        if name not in self._named:
            self._named[name] = self.row(limit)
        return self._named[name]

    def add(self, row: int, column: int, factor: float) -> None:
        self.entries.append((row, column, factor))


def relaxed(problem: RoutingProblem) -> Shares:
    """Solve the relaxed linear program; return the shares of switches.

    Rates are in units of the fastest link with a limit. Raises BadSpec if scipy is missing, and for jobs
    whose program is too large.
    """
    program = _Program()
    least = program.variable()
    rates = [program.variable() for _ in problem.routed]
    of_rack: dict[tuple[str, str], dict[str, int]] = {}
    for rate, job in zip(rates, problem.routed, strict=True):
        row = program.row(0.0)  # the least rate is at most every job's
        program.add(row, least, 1.0)
        program.add(row, rate, -1.0)
        _add_job(program, problem, job, rate, of_rack)
        if program.columns > MOST:
            raise BadSpec(
                f"the linear program of {len(problem.routed)} jobs has more than {MOST} variables; want"
                " fewer jobs at a time, or --policy shortest-path or tor-only"
            )
    values = _solve(program, least, rates)
    return {
        key: {name: max(float(values[column]), 0.0) + 1e-9 for name, column in columns.items()}
        for key, columns in of_rack.items()
    }


def _add_job(
    program: _Program,
    problem: RoutingProblem,
    job: Job,
    rate: int,
    of_rack: dict[tuple[str, str], dict[str, int]],
) -> None:
    topology, root = problem.topology, problem.roots[job.name]
    unit = max(link.rate_bps for link in topology.links) or 1e12
    leaving: dict[str, int] = {}

    def use(a: str, b: str, column: int, flows: float) -> None:
        link = directions(topology, a, b)[0]
        limit = topology.links[link // 2].capacity_bps / unit
        program.add(program.named_row(link, min(limit, FREE)), column, flows)

    def remember(name: str, column: int) -> None:
        limit = topology.switch[name].aggregation_bps / unit
        program.add(program.named_row(name, limit), column, 1.0)

    beyond = list(way_to_fallback(topology, job, Tree(root, {}, frozenset())))
    beyond += [job.fallback] if job.fallback else []
    sums = topology.switch[root].aggregates and job.aggregate

    def climb(start: str, end: str, column: int, flows: float) -> None:
        way = [*topology.way(start, end)]
        if end == root and not sums:
            way += beyond[1:]
        for a, b in pairwise(way):
            use(a, b, column, flows)

    if sums:
        remember(root, rate)
    for host in job.hosts:
        use(host, topology.rack_of[host], rate, 1.0)
    for rack in racks_of(topology, job):
        here = sum(topology.rack_of[host] == rack for host in job.hosts)
        enough = program.row(0.0)
        program.add(enough, rate, 1.0)
        of_rack[job.name, rack] = {}
        for name in candidates(problem, job, rack) if job.aggregate else [root]:
            column = of_rack[job.name, rack][name] = program.variable()
            program.add(enough, column, -1.0)
            climb(rack, name, column, here)
            if name == root:
                continue
            if name not in leaving:
                leaving[name] = program.variable()
                climb(name, root, leaving[name], 1.0)
                remember(name, leaving[name])
            row = program.row(0.0)
            program.add(row, column, 1.0)
            program.add(row, leaving[name], -1.0)


def _solve(program: _Program, least: int, rates: list[int]) -> Any:
    try:
        from scipy.optimize import linprog
        from scipy.sparse import coo_matrix
    except ImportError:
        raise BadSpec("--policy grid needs scipy: pip install 'ina[schedulers]'") from None
    rows, columns, factors = zip(*program.entries, strict=True)
    shape = (len(program.limits), program.columns)
    matrix = coo_matrix((factors, (rows, columns)), shape=shape).tocsr()
    cost = np.zeros(program.columns)
    cost[least] = -1.0
    cost[rates] = -0.01 / len(rates)
    found = linprog(cost, A_ub=matrix, b_ub=program.limits, method="highs")
    if not found.success:
        raise BadSpec(f"the linear program has no solution: {found.message}")
    return found.x
