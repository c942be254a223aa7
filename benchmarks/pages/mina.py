"""MINA (INFOCOM'25), which divides switches among jobs sum by sum, beside simple policies.

Its replica beside what it published, and simple policies on its jobs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.replicas.mina.cluster import Cluster, Ended, Outcome, Tries, queue
from benchmarks.replicas.mina.fabric import Fabric
from benchmarks.replicas.mina.hosts import Choose, FewestFragments, first_fit, locality
from benchmarks.replicas.mina.steps import MODELS, Kinds, Rates, Turns
from benchmarks.replicas.mina.trees import Build, FirstTrees, MinaTrees, SpreadTrees
from bmv2_topos.harness import Call, Experiment, ResultRow, column, columns, markdown, number, selected

PUBLISHED: Final = "published"
THERE: Final = "there"

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


def scenarios(quick: bool) -> list[Call]:
    """Return a call for each row."""
    return [*_published(quick), *_there(quick)]


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


Rows = Sequence[ResultRow]


def tables(rows: Rows) -> str:
    """Return both tables."""
    published, there = (selected(rows, part=part) for part in (PUBLISHED, THERE))
    first = f"### As published\n\n{_as_published(published)}"
    return f"{first}\n\n### On its workload\n\n{_on_its_workload(there)}"


def _as_published(rows: Rows) -> str:
    return markdown(
        ["jobs", "of MINA", "published", "replica", "deviation", "time saved by the network"],
        [
            [
                str(row["mix"]),
                str(row["uses"]).replace(" ", ", ") or "nothing",
                f"{number(row, 'published'):.4f}",
                f"{number(row, 'efficiency'):.4f}",
                f"{number(row, 'efficiency') - number(row, 'published'):+.4f}",
                f"{number(row, 'gain'):.2%}",
            ]
            for row in rows
        ],
    )


def _on_its_workload(rows: Rows) -> str:
    rates = list(dict.fromkeys(number(row, "rate_gbps") for row in rows))
    by_rate = {rate: selected(rows, rate_gbps=int(rate)) for rate in rates}
    heads = [
        head
        for rate in rates
        for head in (f"efficiency at {rate:.0f} Gb/s", "least", "time saved", "slower", "worst")
    ]
    return markdown(
        ["policies", *heads],
        [[name, *(cell for of in by_rate.values() for cell in _cells_there(of, name))] for name in STACKS],
    )


def _cells_there(rows: Rows, name: str) -> list[str]:
    values = column(rows, f"{name}.efficiency")
    return [
        f"{statistics.fmean(values):.3f}",
        f"{min(values):.3f}",
        f"{statistics.fmean(column(rows, f'{name}.gain')):.2%}",
        f"{statistics.fmean(column(rows, f'{name}.slower')):.1%}",
        f"{max(column(rows, f'{name}.worst')):+.0%}",
    ]


EXPERIMENT = Experiment(
    name="mina",
    title="MINA beside simple policies",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
