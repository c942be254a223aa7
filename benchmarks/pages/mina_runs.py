"""Runs of the page on MINA: its replica as published, our policies there, its policies here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.pages.families import workload
from benchmarks.replicas.mina import hosts
from benchmarks.replicas.mina.cluster import Cluster, Ended, Outcome, Tries, queue
from benchmarks.replicas.mina.fabric import Fabric
from benchmarks.replicas.mina.hosts import Choose, FewestFragments, first_fit, locality
from benchmarks.replicas.mina.steps import MODELS, Kinds, Rates, Turns
from benchmarks.replicas.mina.trees import Build, FirstTrees, MinaTrees, SpreadTrees
from bmv2_topos.harness import Call, ResultRow
from controller.simulator.network.run import NetworkTask, run_network
from controller.simulator.network.speed import NetworkSettings

PUBLISHED: Final = "published"
THERE: Final = "there"
HERE: Final = "here"

FIGURES: Final[Mapping[str, Mapping[str, float]]] = {
    "all sizes": {
        "": 0.1709,
        "hosts": 0.5481,
        "trees": 0.2986,
        "trees turns": 0.8523,
        "hosts trees": 0.6226,
        "hosts trees turns": 0.9392,
    },
    "many on one host": {"": 0.2897, "hosts trees turns": 0.84},
    "from two hosts": {"": 0.2474, "hosts trees turns": 0.9468},
    "from eight hosts": {"": 0.8995, "hosts trees turns": 0.9989},
}
"""Efficiencies in the result files of the public simulator, by mix and by what of MINA is used.

The weighted scores of its ablation study and of its large-scale simulation (commit 46c02f4).
"""

FIXED: Final = (1, 2, 3, 4, 5)
LATER: Final = (9011, 9012, 9013, 9014, 9015)
"""Seeds drawn after the policies and the page's rules were fixed."""
RATES_GBPS: Final = (100, 25)
JOBS: Final = 150
MOST_HOSTS: Final = 32
SMALL: Final = Fabric(hosts_in_rack=4, racks_in_pod=4, pods=8, above_rack=4, above_pod=4)
PARTS: Final = 16
SLOWER: Final = 1.01
"""A job is slower if it takes more than this factor of its time under MINA's baseline."""


@dataclass(frozen=True, slots=True)
class There:
    """Policies in the replica."""

    choose: Choose
    build: Callable[[Fabric, Tries], Build]
    turns: Turns
    grouped: bool = False
    quota: int = 1
    parts: int = 1


def _unshared(fabric: Fabric, _tries: Tries) -> Build:
    return FirstTrees(fabric)


def _spread(fabric: Fabric, _tries: Tries) -> Build:
    return SpreadTrees(fabric)


def _mina(fabric: Fabric, tries: Tries) -> Build:
    return MinaTrees(fabric, tries)


FRAGMENTS: Final = FewestFragments()
BASELINE: Final = "first fit, static"
NEAR: Final = "locality, static"
SHARED: Final = "locality, shared"
GAINING: Final = "locality, shared by those that gain"
PREEMPTIVE: Final = "locality, preemptive"
DOUBLE: Final = "locality, shared, twice the memory"
MINA: Final = "**MINA**"
WITHOUT_HOSTS: Final = "MINA without its hosts (first fit)"
WITHOUT_TREES: Final = "MINA without its trees (spread)"
WITHOUT_TURNS: Final = "MINA without its turns (first come)"
INVERTED: Final = "MINA, who gains least first"
MESSY: Final = "MINA, most fragments"
ALONE_HOSTS: Final = "only MINA's hosts"
ALONE_TURNS: Final = "only MINA's turns"
STACKS: Final[Mapping[str, There]] = {
    BASELINE: There(first_fit, _unshared, Turns.FIRST_COME),
    NEAR: There(locality, _unshared, Turns.FIRST_COME),
    SHARED: There(locality, _spread, Turns.FIRST_COME),
    GAINING: There(locality, _spread, Turns.GAINING),
    PREEMPTIVE: There(locality, _spread, Turns.GAIN, grouped=True, parts=PARTS),
    DOUBLE: There(locality, _spread, Turns.FIRST_COME, quota=2),
    MINA: There(FRAGMENTS, _mina, Turns.GAIN, grouped=True),
    WITHOUT_HOSTS: There(first_fit, _mina, Turns.GAIN, grouped=True),
    WITHOUT_TREES: There(FRAGMENTS, _spread, Turns.GAIN, grouped=True),
    WITHOUT_TURNS: There(FRAGMENTS, _mina, Turns.FIRST_COME, grouped=True),
    ALONE_HOSTS: There(FRAGMENTS, _unshared, Turns.FIRST_COME),
    ALONE_TURNS: There(first_fit, _spread, Turns.GAIN, grouped=True),
    INVERTED: There(FRAGMENTS, _mina, Turns.LEAST_GAIN, grouped=True),
    MESSY: There(FewestFragments(-1.0), _mina, Turns.GAIN, grouped=True),
}

_FRAGMENTS_HERE: Final = f"{hosts.__file__}:fewest_fragments"
_TREES_HERE: Final = f"{hosts.__file__}:independent_trees"
SIMPLEST: Final = "locality"
MINA_HERE: Final = "**MINA's servers and trees**"
OURS: Final[Mapping[str, tuple[str, str]]] = {
    SIMPLEST: ("locality", "shortest-path"),
    "locality, fast links": ("locality-fast-links", "shortest-path"),
    "locality, many paths": ("locality", "ecmp-everywhere"),
    "NetPack": ("netpack", "shortest-path"),
    "MINA's servers": (_FRAGMENTS_HERE, "shortest-path"),
    "MINA's trees": ("locality", _TREES_HERE),
    MINA_HERE: (_FRAGMENTS_HERE, _TREES_HERE),
    "servers spread (inverted)": ("gpu-balance", _TREES_HERE),
}
FAMILIES: Final = ("usual", "odd sizes", "all small", "dense", "mixed link rates", "memory is scarce")
SEEDS_HERE: Final = (3, 3001, 4, 3002, 5, 3003)


def scenarios(quick: bool) -> list[Call]:
    """Return a call for each row."""
    return [*_published(quick), *_there(quick), *_here(quick)]


def _published(quick: bool) -> Iterator[Call]:
    for mix, figures in FIGURES.items():
        for used, figure in figures.items():
            if quick and (mix, used) != ("from eight hosts", ""):
                continue
            yield Call(
                labels={"part": PUBLISHED, "mix": mix, "uses": used, "published": figure},
                call=partial(replayed, mix, used),
                elements=10**9 if "trees" in used else 10**6,
            )


def _there(quick: bool) -> Iterator[Call]:
    for rate_gbps in RATES_GBPS[1:] if quick else RATES_GBPS:
        for seed in FIXED[:1] if quick else (*FIXED, *LATER):
            yield Call(
                labels={"part": THERE, "rate_gbps": rate_gbps, "seed": seed},
                call=partial(compared_there, rate_gbps, seed),
                elements=10**7,
            )


def _here(quick: bool) -> Iterator[Call]:
    for family in FAMILIES[:1] if quick else FAMILIES:
        for seed in SEEDS_HERE[:1] if quick else SEEDS_HERE:
            yield Call(
                labels={"part": HERE, "family": family, "seed": seed},
                call=partial(compared_here, family, seed),
                elements=10**8,
            )


def replayed(mix: str, used: str) -> ResultRow:
    """Return the replica's efficiency for the jobs, the cluster and the policies of a published figure."""
    kinds, fabric = Kinds([*MODELS.values()], Rates()), Fabric()
    cluster = Cluster(
        fabric,
        kinds,
        FRAGMENTS if "hosts" in used else first_fit,
        (_mina if "trees" in used else _unshared)(fabric, Tries(kinds)),
        Turns.GAIN if "turns" in used else Turns.FIRST_COME,
    )
    outcome = cluster.run(queue(mix, len(MODELS)))
    score = outcome.score()
    return {"efficiency": score.efficiency, "gain": 1 - score.took / score.worst}


def compared_there(rate_gbps: float, seed: int) -> ResultRow:
    """Return efficiencies, times and who pays under all policies of `STACKS`."""
    kinds = Kinds([*MODELS.values()], Rates(by_hosts_bytes=rate_gbps * 1e9 / 8))
    asked, tries = queue("all sizes", len(MODELS), jobs=JOBS, seed=seed, most_hosts=MOST_HOSTS), Tries(kinds)
    row: dict[str, float] = {}
    baseline: Mapping[int, Ended] = {}
    for name, policy in STACKS.items():
        cluster = Cluster(
            SMALL,
            kinds,
            policy.choose,
            policy.build(SMALL, tries),
            policy.turns,
            quota=policy.quota,
            grouped=policy.grouped,
            parts=policy.parts,
        )
        outcome = cluster.run(asked)
        ended = {job.number: job for job in outcome.jobs}
        baseline = baseline or ended
        row |= {f"{name}.{what}": value for what, value in _figures(outcome, baseline).items()}
    return row


def _figures(outcome: Outcome, baseline: Mapping[int, Ended]) -> dict[str, float]:
    score = outcome.score()
    several = [job for job in outcome.jobs if job.asked.hosts > 1]
    slower = [job for job in several if job.took_s > SLOWER * baseline[job.number].took_s]
    return {
        "efficiency": score.efficiency,
        "gain": 1 - score.took / score.worst,
        "mean_s": statistics.fmean(job.took_s for job in outcome.jobs),
        "slower": len(slower) / len(several),
        "worst": max(job.took_s / baseline[job.number].took_s - 1 for job in several),
    }


def compared_here(family: str, seed: int) -> ResultRow:
    """Return completion times, and who pays, under all policies of `OURS` as flows on our cluster."""
    jobs, topology = workload(family, seed)
    row: dict[str, float] = {}
    simplest: Mapping[str, float] = {}
    for name, (placement, routing) in OURS.items():
        settings = NetworkSettings(placement=placement, routing=routing, memory="shared", seed=seed)
        task = NetworkTask(jobs=jobs, topology=topology, scheduler="fifo-backfill", settings=settings)
        outcome = run_network(task)
        times = {each.spec.name: each.jct_s for each in outcome.simulated.result.jobs if each.completed}
        simplest = simplest or times
        row[f"{name}.mean_s"] = statistics.fmean(times.values())
        row[f"{name}.missed"] = outcome.metrics.missed
        row[f"{name}.slower"] = sum(times[job] > 1.05 * simplest[job] for job in times) / len(times)
    return row
