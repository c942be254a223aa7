"""Where jobs and their sums go: NetPack's placement and GRID's trees beside simple policies.

Generated jobs as flows: placements over memory and oversubscription, and where links differ; rates by routing
over the share of switches that sum.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Final

from benchmarks.pages.families import slowed
from bmv2_topos.harness import (
    Call,
    Experiment,
    ResultRow,
    column,
    columns,
    grouped,
    markdown,
    selected,
    spread,
)
from controller.policies.placement.policy import place
from controller.policies.registry import PLACEMENTS, ROUTINGS
from controller.policies.routing.grid import PASSES, best_of_draws, relaxed
from controller.policies.routing.policy import Policy, RoutingProblem
from controller.simulator.network.generate import generate
from controller.simulator.network.run import NetworkSettings, NetworkTask, run_network
from controller.vocabulary import Job, Topology, fabrics

SEEDS: Final = (0, 1, 2, 3, 4, 1001, 1002, 1003, 1004, 1005)
"""Seeds; the latter half was drawn after the policies were finished."""
NETPACK: Final = "netpack"
PLACED: Final = (NETPACK, "random", "gpu-balance", "least-fragmentation", "locality", "optimus")
PLACED_ON_MIXED: Final = (NETPACK, "least-fragmentation", "locality", "locality-fast-links")
USUAL: Final = (2048, 200e9)
MEMORY: Final = ((512, 200e9), USUAL, (8192, 200e9), (2048, 100e9))
"""Slots, and bits per second of each link between switches."""
SHARES: Final = (0.05, 0.2, 0.5, 1.0)
"""Shares of switches that sum."""
ECMP, ECMP_EVERYWHERE, GRID = "ecmp", "ecmp-everywhere", "grid"
DRAWN, REFINED = "grid, not refined", "grid, without its program"
ROUTED: Final = ("tor-only", "shortest-path", ECMP, ECMP_EVERYWHERE, REFINED, DRAWN, GRID)
TREES: Final[Mapping[str, Callable[[fabrics.Parts], Topology]]] = {
    "fat-tree, 80 switches, 192 servers": lambda parts: fabrics.fat_tree(8, 6, parts),
    "leaf-spine, 60 switches, 500 servers": lambda parts: fabrics.leaf_spine(10, 50, 10, parts),
}
PLACEMENT, MIXED, ROUTING = "placement", "mixed", "routing"


def scenarios(quick: bool) -> Iterator[Call]:
    """Return all runs: of routing, of a second and more each; all others, of a fraction of one."""
    seeds, memory, placed = (SEEDS[:1], (USUAL,), PLACED[:3]) if quick else (SEEDS, MEMORY, PLACED)
    for seed in seeds:
        for (slots, trunk_bps), name in product(memory, placed):
            yield Call(
                labels={
                    "part": PLACEMENT, "seed": seed, "placement": name, "slots": slots, "trunk_bps": trunk_bps
                },
                call=partial(simulated, name, slots, trunk_bps, seed),
            )  # fmt: skip
        for odd, name in product((False, True), PLACED_ON_MIXED):
            yield Call(
                labels={"part": MIXED, "seed": seed, "placement": name, "odd": odd},
                call=partial(on_mixed_links, name, odd, seed),
            )
    for topology, share, seed in product(
        list(TREES)[: 1 if quick else None], SHARES[: 1 if quick else None], seeds
    ):
        yield Call(
            labels={"part": ROUTING, "topology": topology, "share": share, "seed": seed},
            call=partial(routed, topology, share, seed),
        )


def cluster(slots: int, trunk_bps: float) -> Topology:
    """Return two spines and four racks of eight servers with four GPUs."""
    return fabrics.leaf_spine(2, 4, 8, fabrics.Parts(gpus=4, slots=slots, trunk_bps=trunk_bps))


def workload(seed: int) -> list[Job]:
    """Return jobs of 2 to 24 workers."""
    rng = random.Random(seed)
    models = ("resnet50", "vgg16", "bert-base")
    jobs = generate(24, cluster(*USUAL), seed=seed, models=models, gap_s=20.0)
    return [replace(job, workers=rng.choice((2, 4, 8, 12, 24)), hold_s=40e-6) for job in jobs]


def simulated(placement: str, slots: int, trunk_bps: float, seed: int) -> ResultRow:
    """Return the jobs' mean completion time by placement, over memory and the links between switches."""
    return _simulated(placement, workload(seed), cluster(slots, trunk_bps), seed)


def on_mixed_links(placement: str, odd: bool, seed: int) -> ResultRow:
    """Return the same for a cluster with half of the servers on slow links; `odd`: with odd sizes."""
    rng = random.Random(seed)
    topology = slowed(cluster(*USUAL), 0.5, rng)
    jobs = workload(seed)
    if odd:
        jobs = [replace(job, workers=rng.choice((3, 5, 7, 11, 13))) for job in jobs]
    return _simulated(placement, jobs, topology, seed)


def _simulated(placement: str, jobs: Sequence[Job], topology: Topology, seed: int) -> ResultRow:
    settings = NetworkSettings(placement=placement, memory="shared", seed=seed)
    task = NetworkTask(jobs=jobs, topology=topology, scheduler="fifo-backfill", settings=settings)
    return {"jct_s": run_network(task).metrics.avg_jct_s}


def routed(topology: str, share: float, seed: int) -> ResultRow:
    """Return the mean rate (Gb/s) of a batch of jobs by routing policy, in the steady state."""
    fabric = TREES[topology](fabrics.Parts(gpus=1, slots=8192, programmable=share, seed=seed))
    rng = random.Random(seed)
    batch = [
        Job(name=f"job{n}", workers=rng.choice((8, 16)), layers_bytes=(10**8,), compute_s=0.01, iterations=1)
        for n in range(12)
    ]
    placed = place(fabric, batch, PLACEMENTS["random"], seed=seed).state.jobs
    rates = {}
    policies: Mapping[str, Policy] = {
        **ROUTINGS,
        DRAWN: lambda problem: best_of_draws(problem, relaxed(problem), passes=0),
        REFINED: lambda problem: best_of_draws(problem, None, passes=PASSES),
    }
    for name in ROUTED:
        problem = RoutingProblem(
            fabric, tuple(replace(job, tree=None) for job in placed), rng=random.Random(seed)
        )
        state = problem.evaluate(policies[name](problem))
        rates[name] = statistics.fmean(state.steady.rate_bps) / 1e9
    return rates


def tables(rows: Sequence[ResultRow]) -> str:
    """Return all tables."""
    memory = grouped(selected(rows, part=PLACEMENT), "slots", "trunk_bps").values()
    mixed = grouped(selected(rows, part=MIXED), "odd").values()
    heads = [
        f"{group[0]['slots']} slots, {float(str(group[0]['trunk_bps'])) / 1e9:g} Gb/s" for group in memory
    ]
    placed = [(PLACED, heads, memory), (PLACED_ON_MIXED, ["2 to 24 workers", "3 to 13, odd"], mixed)]
    titles = ("Mean completion time (s) by placement", "The same where half of the servers have slow links")
    parts = []
    for title, (names, columns_, groups) in zip(titles, placed, strict=True):
        found = [
            [
                name,
                *(
                    spread(times_s, ",.0f")
                    for times_s in (column(group, "jct_s", placement=name) for group in groups)
                ),
            ]
            for name in names
            if all(column(group, "jct_s", placement=name) for group in groups)
        ]
        parts.append(f"### {title}\n\n{markdown(['placement', *columns_], found)}")
    lines = []
    for (topology, share), group in grouped(selected(rows, part=ROUTING), "topology", "share").items():
        rates = [spread(column(group, name), ".1f") for name in ROUTED]
        gains = [f"{gain(group, over):+.0%}" for over in (ECMP, ECMP_EVERYWHERE)]
        lines.append([f"{topology}, {share:.0%} sum", *rates, *gains])
    table = markdown(["topology", *ROUTED, "grid over ecmp", "over ecmp-everywhere"], lines)
    return "\n\n".join([*parts, f"### Mean rate of twelve jobs (Gb/s) by routing\n\n{table}"])


def gain(rows: Sequence[ResultRow], over: str) -> float:
    """Return the mean gain of GRID's rates over another policy's, seed by seed."""
    pairs = zip(column(rows, GRID), column(rows, over), strict=True)
    return statistics.fmean(grid / other - 1 for grid, other in pairs)


EXPERIMENT = Experiment(
    name="trees",
    title="Placement and trees: NetPack and GRID beside simple policies",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
