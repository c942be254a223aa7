"""MINA (INFOCOM'25), which divides switches among jobs sum by sum: its replica beside published figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from benchmarks.replicas.mina.cluster import Cluster, Tries, queue
from benchmarks.replicas.mina.fabric import Fabric
from benchmarks.replicas.mina.hosts import FewestFragments, first_fit
from benchmarks.replicas.mina.steps import MODELS, Kinds, Rates, Turns
from benchmarks.replicas.mina.trees import FirstTrees, MinaTrees
from bmv2_topos.harness import Call, Experiment, ResultRow, columns, markdown, number

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
"""Efficiencies in the result files of the public simulator, by mix and by the used parts of MINA.

The weighted scores of its ablation study and of its large-scale simulation (commit 46c02f4).
"""

FRAGMENTS: Final = FewestFragments()


def scenarios(quick: bool) -> Iterator[Call]:
    """Return a call for each row."""
    for mix, figures in FIGURES.items():
        for used, figure in figures.items():
            if quick and (mix, used) != ("from eight hosts", ""):
                continue
            yield Call(
                labels={"mix": mix, "uses": used, "published": figure},
                call=partial(replayed, mix, used),
                elements=10**9 if "trees" in used else 10**6,
            )


def replayed(mix: str, used: str) -> ResultRow:
    """Return the replica's efficiency for the jobs, the cluster and the policies of a published figure."""
    kinds, fabric = Kinds([*MODELS.values()], Rates()), Fabric()
    cluster = Cluster(
        fabric,
        kinds,
        FRAGMENTS if "hosts" in used else first_fit,
        MinaTrees(fabric, Tries(kinds)) if "trees" in used else FirstTrees(fabric),
        Turns.GAIN if "turns" in used else Turns.FIRST_COME,
    )
    outcome = cluster.run(queue(mix, len(MODELS)))
    score = outcome.score()
    return {"efficiency": score.efficiency, "gain": 1 - score.took / score.worst}


Rows = Sequence[ResultRow]


def tables(rows: Sequence[ResultRow]) -> str:
    """Return the table."""
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


EXPERIMENT = Experiment(
    name="mina",
    title="MINA as published",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
