"""Compare the replica with a clone of MINA's public simulator: its measured models, and its results.

``python -m benchmarks.replicas.mina CLONE`` takes half a minute.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.replicas.mina.cluster import Cluster, Tries, queue
from benchmarks.replicas.mina.fabric import Fabric
from benchmarks.replicas.mina.hosts import FewestFragments, first_fit
from benchmarks.replicas.mina.steps import MODELS, NUMBERS, Kinds, Model, Rates, Turns, read
from benchmarks.replicas.mina.trees import FirstTrees


def turns(models: Sequence[Model], published: Mapping[str, Any]) -> float:
    """Return the largest deviation of the efficiency of groups of two and three jobs on one switch."""
    kinds = Kinds([model.faster(1.5) for model in models], Rates(ratio=1.5))
    tries, off = Tries(kinds, steps=100), 0.0
    for jobs in (2, 3):
        groups = itertools.product(range(len(models)), repeat=jobs)
        for group, figure in zip(groups, published[f"result_{jobs}_jobs"], strict=True):
            off = max(off, abs(tries(tuple((2, model) for model in group)).efficiency - figure))
    return off


def static(models: Sequence[Model], mix: str, figures: Mapping[str, float], *, fragments: bool) -> float:
    """Return the relative deviation of all jobs' time, without conflicts and with the simulator's jobs."""
    fabric = Fabric()
    choose = FewestFragments() if fragments else first_fit
    cluster = Cluster(fabric, Kinds(models, Rates()), choose, FirstTrees(fabric), Turns.FIRST_COME)
    took_s = cluster.run(queue(mix, len(models))).score().took
    return abs(took_s / figures["TotalJCTWeighted"] - 1)


def main(clone: Path) -> None:
    """Print the deviations, with the measured models and with the replica's."""
    results = clone / "results"
    sharing, large, parts = (
        json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("sharing", "large_scale_simulation", "ablation_study")
    )
    for name, models in (("measured", read(clone / "traces")), ("the replica's", MODELS)):
        used = [*models.values()]
        print(f"models: {name}")
        print(f"  turns, efficiency of 392 groups: at most {turns(used, sharing):.3g} off")
        for mix, number in NUMBERS.items():
            print(f"  {mix}, time: {static(used, mix, large[2 * number + 1], fragments=False):.3g} off")
        print(f"  all sizes, fewest fragments: {static(used, 'all sizes', parts[4], fragments=True):.3g} off")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
