"""Lucid's scheduler, on measured or made-up data.

`python -m benchmarks.schedulers.lucid schedule [--folder DIR --profiles FILE --pairs FILE]`: Lucid against
baselines on one speed model. A folder has a `cluster_full_log.csv` and the predictions `Philly_ebm.csv` and
`Philly_lgb.csv`. `--replica` takes the rules of the public simulator. Policies are `ina schedule`'s policies
`lucid:`.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fill import Command, option, serve, timed
from benchmarks.schedulers.trace_files import resolved
from controller.policies.family import SimulationConfig
from controller.policies.scheduling import Submission
from controller.policies.scheduling.lucid.family import Config, measurements
from controller.policies.scheduling.lucid.usage import (
    GpuUsage,
)
from controller.simulator.runs import Source, make
from controller.vocabulary import Cluster


def make_jobs(count: int, usages: dict[Config, GpuUsage], *, gap_s: float, seed: int = 0) -> list[Submission]:
    """Make up a trace: most jobs are short and have one GPU, a few run for hours on many."""
    rng = random.Random(seed)
    configs = list(usages)
    now_s, specs = 0.0, []
    for number in range(count):
        now_s += rng.expovariate(1 / gap_s)
        config = rng.choice(configs)
        gpus = rng.choices((1, 2, 4, 8), (70, 14, 10, 6))[0]
        duration_s = math.exp(rng.gauss(6.5, 1.6)) + 1
        specs.append(
            Submission(
                str(number),
                now_s,
                gpus,
                duration_s,
                1.0,
                model=config.model,
                batch=config.batch,
                estimate_s=duration_s * math.exp(rng.gauss(0, 0.4)),
                extra={"dataset": config.dataset, "amp": str(int(config.mixed_precision))},
            )
        )
    return specs


ResultRow = dict[str, object]

NODES, GPUS = 8, 8
PAPER = ("fifo", "sjf", "srtf", "qssf", "tiresias", "lucid-2", "lucid", "online", "no-sharing")
REPLICA = ("fifo", "sjf", "qssf", "srtf", "tiresias", "lucid")


def main() -> None:
    """Measure, print a table, and JSON on request."""
    options = (
        option("--folder", type=Path, help="read a trace with its predictions from this folder"),
        option("--replica", action="store_true", help="use the public simulator's rules"),
        option("--profiles", type=Path),
        option("--pairs", type=Path),
        option("--seed", type=int, default=0),
    )
    serve(
        "benchmarks.schedulers.lucid",
        __doc__,
        Command("schedule", "Lucid against baselines", run_schedule, options),
    )


def run_schedule(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Run the policies."""
    cluster = Cluster.uniform(NODES, GPUS)
    config = SimulationConfig(cluster, profiles=options.profiles, pairs=options.pairs, seed=options.seed)
    family, names = ("lucid-replica", REPLICA) if options.replica else ("lucid", PAPER)
    rows = []
    for name in names:
        predictor = "lgb" if options.replica and name == "qssf" else "ebm"
        specs = jobs_of(options.folder, predictor, config)
        rows.append(run(name, f"{family}:{name}", specs, config))
    first = next(row for row in rows if row["policy"] == "tiresias")
    for row in rows:
        row["tiresias takes"] = float(str(first["average_s"])) / float(str(row["average_s"]))
    return rows, f"{len(specs)} jobs on {NODES * GPUS} GPUs, as {'replica' if options.replica else 'paper'}"


def jobs_of(folder: Path | None, predictor: str, config: SimulationConfig) -> list[Submission]:
    """Read a trace with predictions of its jobs, or make one up."""
    if folder is None:
        return make_jobs(1000, measurements(config)[0], gap_s=100, seed=config.seed)
    estimates = folder / f"Philly_{predictor}.csv"
    return Source(folder / "cluster_full_log.csv").jobs(replace(config, estimates=estimates))


def run(name: str, policy: str, specs: Sequence[Submission], config: SimulationConfig) -> ResultRow:
    """Simulate one policy; return the figures that are compared with the public simulator's."""
    policy, settings = resolved(policy)
    policy_run = make(policy, replace(config, settings=settings))
    result, took_s = timed(policy_run.run, specs, config.cluster)
    jcts = [job.jct_s for job in result.jobs]
    return {
        "policy": name,
        "average_s": statistics.fmean(jcts),
        "p99_s": float(np.percentile(jcts, 99)),
        "last_end_s": max(job.finish_s for job in result.jobs),
        "wall_s": took_s,
    }


if __name__ == "__main__":
    main()
