"""The runs of the page on policies together: clusters as flows, estimates of placements, rates by routing."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from bmv2_topos.harness import Call, ResultRow
from controller.core.allocator import goodput
from controller.policies.by_kind import FRAME_BYTES
from controller.policies.placement.policy import place
from controller.policies.registry import PLACEMENTS, ROUTINGS
from controller.policies.routing.grid import PASSES, best_of_draws, relaxed
from controller.policies.routing.policy import Policy, Question
from controller.simulator.network.generate import generate
from controller.simulator.network.run import NetworkTask, run_network, simulate_network
from controller.simulator.network.speed import NetworkSettings
from controller.vocabulary import Job, Topology, fabrics

SEEDS: Final = (0, 1, 2, 3, 4, 1001, 1002, 1003, 1004, 1005)
"""Of which the latter half was drawn after the policies were as they are."""
JOBS: Final = 24
MODELS: Final = ("resnet50", "vgg16", "bert-base")
NETPACK: Final = "netpack"
LOCALITY, FAST_LINKS = "locality", "locality-fast-links"
PLACED: Final = (NETPACK, "random", "gpu-balance", "least-fragmentation", LOCALITY, "optimus")
PLACED_ON_MIXED: Final = (NETPACK, "least-fragmentation", LOCALITY, FAST_LINKS)
USUAL: Final = (2048, 200e9)
SLOW: Final = (2048, 100e9)
MEMORY: Final = ((512, 200e9), USUAL, (8192, 200e9), SLOW)
"""Slots, and bits per second of each link between switches."""
BASE: Final = ("fifo-backfill", LOCALITY, "static")
"""The strongest of the simple ones."""
WEAK: Final = ("fifo-backfill", "gpu-balance", "static")
"""What published gains are often given against."""
BEST: Final = ("srsf", NETPACK, "shared")
ESTIMATED: Final = (NETPACK, "random")
ITERATIONS: Final = 12
"""Iterations with which estimates are compared."""
SHARES: Final = (0.05, 0.2, 0.5, 1.0)
"""Of the switches, those that sum."""
ECMP, ECMP_EVERYWHERE, GRID = "ecmp", "ecmp-everywhere", "grid"
DRAWN, REFINED = "grid, not refined", "grid, without its program"
ROUTED: Final = ("tor-only", "shortest-path", ECMP, ECMP_EVERYWHERE, REFINED, DRAWN, GRID)
SLOW_LINK_BPS: Final = 10e9
ODD: Final = (3, 5, 7, 11, 13)
TREES: Final[Mapping[str, Callable[[fabrics.Parts], Topology]]] = {
    "fat-tree, 80 switches, 192 servers": lambda parts: fabrics.fat_tree(8, 6, parts),
    "leaf-spine, 60 switches, 500 servers": lambda parts: fabrics.leaf_spine(10, 50, 10, parts),
}
PLACEMENT, MIXED, TOGETHER, ESTIMATE, ROUTING = "placement", "mixed", "together", "estimate", "routing"


Names = tuple[str, str, str]
"""A scheduler, a placement and a policy for memory."""


def scenarios(quick: bool) -> list[Call]:
    """Return all runs; those that route take a second and more each, all others a fraction of one."""
    seeds = SEEDS[:1] if quick else SEEDS
    memory = (USUAL,) if quick else MEMORY
    placed = PLACED[:3] if quick else PLACED
    together = (BASE, BEST) if quick else (WEAK, *combinations())
    clusters = [
        call
        for seed in seeds
        for call in (*_placement(seed, memory, placed), *_mixed(seed), *_together(seed, together))
    ]
    estimates = [call for seed in seeds for call in _estimate(seed, memory)]
    return [*clusters, *estimates, *_routing(seeds, quick)]


def _placement(seed: int, memory: Sequence[tuple[int, float]], placed: Sequence[str]) -> Iterator[Call]:
    for slots, trunk_bps in memory:
        for placement in placed:
            names = ("fifo-backfill", placement, "shared")
            yield Call(
                labels={**_labels(PLACEMENT, seed, names), "slots": slots, "trunk_bps": trunk_bps},
                call=partial(simulated, names, slots, trunk_bps, seed),
            )


def _mixed(seed: int) -> Iterator[Call]:
    for odd in (False, True):
        for placement in PLACED_ON_MIXED:
            yield Call(
                labels={"part": MIXED, "seed": seed, "placement": placement, "odd": odd},
                call=partial(on_mixed_links, placement, odd, seed),
            )


def _together(seed: int, together: Sequence[Names]) -> Iterator[Call]:
    for names in together:
        yield Call(labels=_labels(TOGETHER, seed, names), call=partial(simulated, names, *USUAL, seed))


def _labels(part: str, seed: int, names: Names) -> ResultRow:
    return {"part": part, "seed": seed, **labels_of(names)}


def _estimate(seed: int, memory: Sequence[tuple[int, float]]) -> Iterator[Call]:
    for placement in ESTIMATED:
        for slots, trunk_bps in memory:
            yield Call(
                labels={
                    "part": ESTIMATE,
                    "placement": placement,
                    "slots": slots,
                    "trunk_bps": trunk_bps,
                    "seed": seed,
                },
                call=partial(estimated, placement, slots, trunk_bps, seed),
            )


def _routing(seeds: Sequence[int], quick: bool) -> Iterator[Call]:
    for topology in list(TREES)[: 1 if quick else None]:
        for share in SHARES[:1] if quick else SHARES:
            for seed in seeds:
                yield Call(
                    labels={"part": ROUTING, "topology": topology, "share": share, "seed": seed},
                    call=partial(routed, topology, share, seed),
                )


def labels_of(names: Names) -> dict[str, str]:
    """Return the labels of a scheduler, a placement and a policy for memory."""
    return dict(zip(("scheduler", "placement", "memory"), names, strict=True))


def combinations() -> list[Names]:
    """Return the base, each part of the best exchanged alone, each pair, and all."""
    return [exchanged(*(bool(mask >> place & 1) for place in range(3))) for mask in range(8)]


def exchanged(scheduler: bool = False, placement: bool = False, memory: bool = False) -> Names:
    """Return the base with these parts of the best."""
    return (
        BEST[0] if scheduler else BASE[0],
        BEST[1] if placement else BASE[1],
        BEST[2] if memory else BASE[2],
    )


def cluster(slots: int, trunk_bps: float) -> Topology:
    """Return two spines and four racks of eight servers with four GPUs."""
    return fabrics.leaf_spine(2, 4, 8, fabrics.Parts(gpus=4, slots=slots, trunk_bps=trunk_bps))


def workload(seed: int) -> list[Job]:
    """Return jobs of 2 to 24 workers."""
    rng = random.Random(seed)
    jobs = generate(JOBS, cluster(*USUAL), seed=seed, models=MODELS, gap_s=20.0)
    return [replace(job, workers=rng.choice((2, 4, 8, 12, 24)), hold_s=40e-6) for job in jobs]


def simulated(names: Names, slots: int, trunk_bps: float, seed: int) -> ResultRow:
    """Return the jobs' results under a scheduler, a placement and a policy for memory."""
    return _simulated(names, workload(seed), cluster(slots, trunk_bps), seed)


def on_mixed_links(placement: str, odd: bool, seed: int) -> ResultRow:
    """Return the jobs' results where half of the servers have slow links; `odd`: and sizes are odd."""
    rng = random.Random(seed)
    plain = cluster(*USUAL)
    slow = {*rng.sample([server.name for server in plain.servers], len(plain.servers) // 2)}
    links = (
        replace(link, rate_bps=SLOW_LINK_BPS) if slow & {link.a, link.b} else link for link in plain.links
    )
    jobs = workload(seed)
    if odd:
        jobs = [replace(job, workers=rng.choice(ODD)) for job in jobs]
    names = ("fifo-backfill", placement, "shared")
    return _simulated(names, jobs, replace(plain, links=tuple(links)), seed)


def _simulated(names: Names, jobs: Sequence[Job], topology: Topology, seed: int) -> ResultRow:
    scheduler, placement, memory = names
    task = NetworkTask(
        jobs=jobs,
        topology=topology,
        scheduler=scheduler,
        settings=NetworkSettings(placement=placement, memory=memory, seed=seed),
    )
    metrics = run_network(task).metrics
    return {"jct_s": metrics.avg_jct_s, "p99_s": metrics.p99_jct_s, "slowdown": metrics.avg_slowdown}


def estimated(placement: str, slots: int, trunk_bps: float, seed: int) -> ResultRow:
    """Return the time of an iteration that a placement counted on, by job across servers, and comes to.

    What it comes to is that of `ITERATIONS` iterations in phases, beside all others of the batch.
    """
    fabric = goodput(cluster(slots, trunk_bps), FRAME_BYTES)
    batch = [replace(job, arrival_s=0.0, iterations=ITERATIONS) for job in workload(seed)]
    state = place(fabric, batch, PLACEMENTS[placement], seed=seed).state
    settings = NetworkSettings(placement=NETPACK, model="phases", frame_bytes=0, window=0, tensors=4)
    found = simulate_network(state.jobs, fabric, "fifo-backfill", settings).result
    came_s = {each.spec.name: each.jct_s / ITERATIONS for each in found.jobs}
    row: dict[str, float] = {}
    for job in state.jobs:
        if len(job.hosts) > 1:
            row[f"{job.name}.estimate_s"] = job.iteration_at_s(state.rate_bps(job))
            row[f"{job.name}.iteration_s"] = came_s[job.name]
    return row


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
        DRAWN: lambda question: best_of_draws(question, relaxed(question), passes=0),
        REFINED: lambda question: best_of_draws(question, None, passes=PASSES),
    }
    for name in ROUTED:
        question = Question(fabric, tuple(replace(job, tree=None) for job in placed), rng=random.Random(seed))
        state = question.evaluate(policies[name](question))
        rates[name] = statistics.fmean(state.steady.rate_bps) / 1e9
    return rates
