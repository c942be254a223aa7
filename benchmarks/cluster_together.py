"""The tables of docs/results/together.md: scheduler, placement, memory and trees, each alone and together.

`python -m benchmarks.cluster_together --output docs/results` simulates generated jobs as flows, five seeds
for each setting: placements over memory and oversubscription, routing over the share of switches that sum,
and schedulers with placement and memory, one exchanged at a time and all at once.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.pages import check, fill
from bmv2_topos.experiments.harness import markdown
from controller.placement.policies import POLICIES as PLACEMENTS
from controller.placement.policy import place
from controller.routing.policies import POLICIES as ROUTINGS
from controller.routing.policy import Question
from controller.simulator.network.allocator import goodput
from controller.simulator.network.run import NetworkTask, run_network, simulate_network
from controller.simulator.network.settings import FRAME_BYTES, NetworkSettings
from controller.simulator.pool import run_each
from controller.workload import Cluster, TrainingJob, fabrics
from controller.workload.generate import generate

NAME = "together"
SEEDS = range(5)
JOBS = 24
MODELS = ("resnet50", "vgg16", "bert-base")
PLACED = ("netpack", "random", "gpu-balance", "least-fragmentation", "locality", "optimus")
MEMORY = ((512, 200e9), (2048, 200e9), (8192, 200e9), (2048, 100e9))
"""Slots, and bits per second of each link between switches."""
BASE = ("fifo-backfill", "gpu-balance", "static")
BEST = ("srsf", "netpack", "shared")
ESTIMATED = tuple((name, *there) for name in ("netpack", "random") for there in MEMORY)
ITERATIONS = 12
SHARES = (0.2, 0.5, 1.0)
ROUTED = ("tor-only", "ecmp", "shortest-path", "grid")
TREES = {
    "fat-tree, 80 switches, 192 servers": lambda parts: fabrics.fat_tree(8, 6, parts),
    "leaf-spine, 60 switches, 500 servers": lambda parts: fabrics.leaf_spine(10, 50, 10, parts),
}

Row = dict[str, Any]


def cluster(slots: int = 2048, trunk_bps: float = 200e9) -> Cluster:
    """Return two spines and four racks of eight servers with four GPUs."""
    return fabrics.leaf_spine(2, 4, 8, fabrics.Parts(gpus=4, slots=slots, trunk_bps=trunk_bps))


def workload(seed: int) -> list[TrainingJob]:
    """Return jobs of 2 to 24 workers."""
    rng = random.Random(seed)
    jobs = generate(JOBS, cluster(), seed=seed, models=MODELS, gap_s=20.0)
    return [replace(job, workers=rng.choice((2, 4, 8, 12, 24)), hold_s=40e-6) for job in jobs]


def simulated(processes: int) -> list[Row]:
    """Return a row for each simulation."""
    labels: list[Row] = []
    tasks = []

    def add(part: str, seed: int, names: tuple[str, str, str], fabric: Cluster, **label: object) -> None:
        scheduler, placement, memory = names
        labels.append(
            {
                "part": part,
                "seed": seed,
                "scheduler": scheduler,
                "placement": placement,
                "memory": memory,
                **label,
            }
        )
        settings = NetworkSettings(placement=placement, memory=memory, seed=seed)
        tasks.append(NetworkTask(jobs=workload(seed), cluster=fabric, scheduler=scheduler, settings=settings))

    for seed in SEEDS:
        for slots, trunk_bps in MEMORY:
            for placement in PLACED:
                names = ("fifo-backfill", placement, "shared")
                add("placement", seed, names, cluster(slots, trunk_bps), slots=slots, trunk_bps=trunk_bps)
        for names in together():
            add("together", seed, names, cluster())
    outcomes = run_each(run_network, tasks, processes=processes)
    return [
        {
            **label,
            "jct_s": o.metrics.avg_jct_s,
            "p99_s": o.metrics.p99_jct_s,
            "slowdown": o.metrics.avg_slowdown,
        }
        for label, o in zip(labels, outcomes, strict=True)
    ]


def together() -> list[tuple[str, str, str]]:
    """Return the base, each part of the best exchanged alone, each pair, and all."""
    return list(
        dict.fromkeys(tuple(BEST[n] if mask >> n & 1 else BASE[n] for n in range(3)) for mask in range(8))
    )  # type: ignore[return-value]


def routed(task: tuple[str, float, int], progress: object = None) -> Row:
    """Return the sums of rates that each routing policy comes to, on one topology."""
    topology, share, seed = task
    parts = fabrics.Parts(gpus=1, slots=8192, programmable=share, seed=seed)
    fabric = TREES[topology](parts)
    rng = random.Random(seed)
    batch = [
        TrainingJob(name=f"job{n}", workers=rng.choice((8, 16)), layers_bytes=(10**8,), compute_s=0.01)
        for n in range(12)
    ]
    placed = place(fabric, batch, PLACEMENTS["random"], seed=seed).state.jobs
    rates = {}
    for name in ROUTED:
        question = Question(fabric, tuple(replace(job, tree=None) for job in placed), rng=random.Random(seed))
        state = question.evaluate(ROUTINGS[name](question))
        rates[name] = statistics.fmean(state.steady.rate_bps) / 1e9
    return {"part": "routing", "topology": topology, "share": share, "seed": seed, **rates}


def estimated(task: tuple[str, int, float, int], progress: object = None) -> list[Row]:
    """Return for each job of a batch the time of an iteration that its placement counted on, and comes to.

    What it comes to is that of `ITERATIONS` iterations in phases, beside all others of the batch.
    """
    placement, slots, trunk_bps, seed = task
    fabric = goodput(cluster(slots, trunk_bps), FRAME_BYTES)
    batch = [replace(job, arrival_s=0.0, iterations=ITERATIONS) for job in workload(seed)]
    state = place(fabric, batch, PLACEMENTS[placement], seed=seed).state
    settings = NetworkSettings(placement="netpack", model="phases", frame_bytes=0, window=0, tensors=4)
    found = simulate_network(state.jobs, fabric, "fifo-backfill", settings).result
    came = {each.spec.id: each.jct_s / ITERATIONS for each in found.jobs}
    return [
        {
            "part": "estimate",
            "placement": placement,
            "slots": slots,
            "trunk_bps": trunk_bps,
            "seed": seed,
            "job": job.name,
            "estimate_s": job.iteration_s(state.rate_bps(job)),
            "iteration_s": came[job.name],
        }
        for job in state.jobs
        if len(job.hosts) > 1
    ]


# ---------------------------------------------------------------------- the page


def text(rows: Sequence[Row]) -> str:
    """Return all tables."""
    placement = [row for row in rows if row["part"] == "placement"]
    cells = [
        [
            name,
            *(_spread(_column(placement, "jct_s", placement=name, slots=s, trunk_bps=t)) for s, t in MEMORY),
        ]
        for name in PLACED
    ]
    columns = ["placement", *(f"{slots} slots, {trunk / 1e9:g} Gb/s" for slots, trunk in MEMORY)]
    parts = ["Mean completion time (s) by placement, over slots of each switch and links between switches:"]
    parts += [markdown(columns, cells)]
    parts += [
        "NetPack's estimate of an iteration when a batch is placed, against what it comes to in phases:"
    ]
    parts += [_estimates([row for row in rows if row["part"] == "estimate"])]
    joint = [row for row in rows if row["part"] == "together"]
    first = dict(zip(("scheduler", "placement", "memory"), BASE, strict=True))
    base = statistics.fmean(_column(joint, "jct_s", **first))
    cells = []
    for names in together():
        chosen = dict(zip(("scheduler", "placement", "memory"), names, strict=True))
        mean = statistics.fmean(_column(joint, "jct_s", **chosen))
        cells.append(
            [
                " + ".join(names),
                _spread(_column(joint, "jct_s", **chosen)),
                _spread(_column(joint, "p99_s", **chosen)),
                f"{statistics.fmean(_column(joint, 'slowdown', **chosen)):.2f}",
                f"{mean / base - 1:+.0%}",
            ]
        )
    parts += ["Scheduler, placement and memory together, 2048 slots:"]
    parts += [markdown(["policies", "mean completion, s", "p99, s", "slowdown", "against the first"], cells)]
    routing = [row for row in rows if row["part"] == "routing"]
    cells = []
    for topology in TREES:
        for share in SHARES:
            found = {name: _column(routing, name, topology=topology, share=share) for name in ROUTED}
            over = {
                name: [g / t - 1 for g, t in zip(found["grid"], found[name], strict=True)]
                for name in ("tor-only", "ecmp")
            }
            cells.append(
                [
                    f"{topology}, {share:.0%} sum",
                    *(_spread(found[name], ".1f") for name in ROUTED),
                    *(f"{statistics.fmean(gain):+.0%}" for gain in over.values()),
                ]
            )
    parts += ["Mean rate of twelve jobs (Gb/s) by routing, over the share of switches that sum:"]
    parts += [markdown(["topology", *ROUTED, "grid over tor-only", "over ecmp"], cells)]
    return "\n\n".join(parts)


def _estimates(rows: Sequence[Row]) -> str:
    cells = []
    for placement, slots, trunk_bps in ESTIMATED:
        here = [
            row
            for row in rows
            if (row["placement"], row["slots"], row["trunk_bps"]) == (placement, slots, trunk_bps)
        ]
        errors = [row["estimate_s"] / row["iteration_s"] - 1 for row in here]
        size = sorted(abs(error) for error in errors)
        cells.append(
            [
                f"{placement}, {slots} slots, {trunk_bps / 1e9:g} Gb/s",
                str(len(size)),
                *(f"{size[min(len(size) - 1, int(part * len(size)))]:.0%}" for part in (0.5, 0.95)),
                f"{statistics.fmean(errors):+.0%}",
            ]
        )
    columns = ["placement", "jobs across servers", "median error", "p95", "mean, signed"]
    return markdown(columns, cells)


def _column(rows: Iterable[Row], column: str, **labels: object) -> list[float]:
    return [row[column] for row in rows if all(row[key] == value for key, value in labels.items())]


def _spread(values: Sequence[float], form: str = ",.0f") -> str:
    mean, least, most = (format(v, form) for v in (statistics.fmean(values), min(values), max(values)))
    return f"{mean} ({least}..{most})"


def main() -> None:
    """Run, print the tables, and write page and rows on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"write {NAME}.json, and into {NAME}.md")
    parser.add_argument("--processes", type=int, default=0)
    given = parser.parse_args()
    if given.output is not None:
        check(given.output / f"{NAME}.md")
    tasks = [(topology, share, seed) for topology in TREES for share in SHARES for seed in SEEDS]
    batches = [(*there, seed) for there in ESTIMATED for seed in SEEDS]
    rows = [
        *simulated(given.processes),
        *(row for found in run_each(estimated, batches, processes=given.processes) for row in found),
        *run_each(routed, tasks, processes=given.processes),
    ]
    shown = text(rows)
    print(shown)
    if given.output is not None:
        fill(given.output / f"{NAME}.md", shown)
        document = json.dumps({"name": NAME, "rows": rows}, indent=1)
        (given.output / f"{NAME}.json").write_text(document + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
