"""Synergy-TUNE compared with Synergy-OPT, and the public simulator's figures reproduced here.

`python -m benchmarks.schedulers.synergy allocate`: jobs that fill a cluster are drawn from a catalog of
made-up tasks, or from measured sensitivity matrices (`--matrix`). OPT is given its programs as published,
with a variable for every point of a matrix; `--pruned` leaves out the points that cannot be optimal.

`python -m benchmarks.schedulers.synergy end-to-end`: the same allocators over whole traces, FIFO: the effect
of their differences on completion times.

`python -m benchmarks.schedulers.synergy published`: policies of the public simulator, by its rules, on its
Philly-derived workload or on a replay trace.

The "Philly-derived" workload of Synergy's public simulator, drawn as there.

Only the shape comes from Philly: durations (80 % of 60·10^U(1.5, 3) s, the others of 60·10^U(3, 4)
s), Poisson arrivals and models are synthetic, and all jobs have one GPU. The random generator is Python's,
asked in the order in which the public simulator asks it once it has cached its durations, so that equal seeds
give equal jobs.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fill import Command, option, serve, timed
from benchmarks.replicas.steps import SteppedRun
from benchmarks.replicas.synergy.rules import RoundSpeed, replica_demands, replica_policy
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.policy import Submission
from controller.policies.scheduling.synergy.allocators import (
    SharePlan,
    drf,
    greedy,
    proportional,
    tetris,
    tune,
)
from controller.policies.scheduling.synergy.demand import (
    BadDemand,
    Demand,
    ModelProfile,
    Sensitivity,
    Servers,
    ServerShape,
    demand,
    read_profiles,
)
from controller.policies.scheduling.synergy.family import synergy, tune_and_top_up
from controller.policies.scheduling.synergy.opt import opt
from controller.policies.scheduling.synergy.policy import ShareSpeed, demands_by_matrix
from controller.policies.scheduling.synergy.profiling import TASKS, model_profiles
from controller.simulator import simulate
from controller.simulator.traces import read
from controller.vocabulary import Cluster

CLASSES: Mapping[str, Sequence[str]] = {
    "image": ("alexnet", "res18", "res50", "mobilenet", "shufflenet"),
    "language": ("gnmt", "transformer", "lstm"),
    "speech": ("m5", "deepspeech"),
}


def draw(
    matrices: Mapping[str, Sensitivity],
    kinds: Mapping[str, Sequence[str]],
    mix: Mapping[str, float],
    *,
    gpus: int,
    server: ServerShape,
    seed: int,
    sizes: Sequence[int] = (1,),
    prune: bool = True,
) -> list[Demand]:
    """Draw random jobs until they have `gpus` GPUs.

    A job's kind is drawn by `mix`, one of its matrices and a size uniformly. The last job is reduced to one
    GPU if it would be too large.

    Args:
        matrices: Sensitivity matrices by name.
        kinds: Names of the matrices of each kind.
        mix: Weight of each kind.
        gpus: Number of GPUs of all jobs together.
        server: The shape of the servers.
        seed: Seed of the draws.
        sizes: Numbers of GPUs of a job.
        prune: Omit options that cannot be optimal; see `demand`.

    Raises BadDemand if the mix names no kind.
    """
    unknown = [k for k in mix if not kinds.get(k)]
    if unknown or sum(mix.values()) <= 0:
        raise BadDemand(
            f"a mix of {dict(mix)}; want positive weights for some of the kinds {', '.join(kinds)}"
        )
    rng = random.Random(seed)
    jobs: list[Demand] = []
    left = gpus
    while left > 0:
        name = rng.choice(kinds[rng.choices(list(mix), list(mix.values()))[0]])
        size = rng.choice(sizes)
        size = size if size <= left else 1
        left -= size
        jobs.append(demand(f"{len(jobs)}-{name}", size, matrices[name], server, prune=prune))
    return jobs


def philly_derived(
    iteration_s: Mapping[str, float],
    *,
    jobs: int,
    jobs_per_hour: float,
    split: Sequence[float] = (20, 70, 10),
    classes: Mapping[str, Sequence[str]] = CLASSES,
    seed: int = 42,
) -> list[Submission]:
    """Draw `jobs` jobs, called 0, 1, 2 and so on.

    Args:
        iteration_s: Seconds per iteration at the fair share of each model in `classes`.
        jobs: Number of jobs.
        jobs_per_hour: Load.
        split: Percent of the jobs of each class.
        classes: Models by class, in the order of `split`.
        seed: Seed of the generator.

    A job is of the class that is furthest behind its percentage, and takes its class's models in turn. Raises
    BadSpec for a bad load or split.
    """
    if not jobs_per_hour > 0 or len(split) != len(classes) or min(split) < 0 or sum(split) <= 0:
        raise BadSpec(
            f"{jobs_per_hour} jobs per hour with a split of {tuple(split)}; the load must be positive,"
            f" and the split a percentage of each of {', '.join(classes)}"
        )
    rng = random.Random(seed)
    durations_s = [_duration_s(rng) for _ in range(jobs)]
    rng = random.Random(seed)
    drawn = dict.fromkeys(classes, 0)
    specs = []
    now_s = 0.0
    for number, duration_s in enumerate(durations_s):
        now_s += math.ceil(-math.log(1.0 - rng.random()) / jobs_per_hour * 60 * 60)
        rng.randint(0, sum(map(len, classes.values())) - 1)  # drawn there, and not used
        behind = {
            name: percent / 100 - drawn[name] / number if number else 0.0
            for name, percent in zip(classes, split, strict=True)
        }
        kind = max(behind, key=lambda name: behind[name])
        model = classes[kind][drawn[kind] % len(classes[kind])]
        drawn[kind] += 1
        each_s = iteration_s[model]
        specs.append(Submission(str(number), now_s, 1, int(duration_s / each_s), each_s, model=model))
    return specs


def _duration_s(rng: random.Random) -> float:
    low, high = (3, 4) if rng.random() >= 0.8 else (1.5, 3)
    return float(60 * (10 ** rng.uniform(low, high)))


Models = Mapping[str, Sequence[str]]
"""Models by kind: image, text and sound."""

KINDS = ("image", "text", "sound")
MEASURED_KINDS: Models = dict(zip(KINDS, CLASSES.values(), strict=True))
MADE_UP_KINDS: Models = {k: [name for name, task in TASKS.items() if task.kind == k] for k in KINDS}
BASELINES: Mapping[str, Callable[[Sequence[Demand], Servers], SharePlan]] = {
    "proportional": proportional,
    "greedy": greedy,
    "drf": drf,
    "tetris": tetris,
    "tune": tune,
    "tune+top-up": tune_and_top_up,
}
ROUND_S = 300.0
TIMES = 5
"""Number of runs of an allocator on the same jobs, of which the fastest counts."""
STATIC_S = ROUND_S - 1
"""Start of a static replay here, seconds: the public simulator's first round comes one second later."""

PUBLIC_JOBS = 5600
PUBLIC_COUNTED = range(4000, 5000)
"""Jobs of the Philly-derived workload that the public simulator needs, and the measured ones among them."""


def sizes(text: str) -> list[int]:
    """Return the numbers that `text` lists by comma."""
    return [int(part) for part in text.split(",")]


def mix(text: str) -> list[float]:
    """Return the weights that `text` lists by comma, one of each kind."""
    image, words, sound = (float(part) for part in text.split(","))
    return [image, words, sound]


def run_allocators(options: argparse.Namespace) -> tuple[list[dict[str, object]], str]:
    """Run all allocators on the same jobs, for each seed."""
    shape = server_shape(options.cpus_per_gpu)
    profiles, kinds = models(options.matrix, shape)
    matrices = {name: profile.sensitivity for name, profile in profiles.items()}
    weights, gpus = dict(zip(KINDS, options.mix, strict=True)), options.servers * 8
    equal = Servers.equal(options.servers, shape)
    results: dict[str, list[tuple[float, float, float, float, float]]] = {}
    for seed in range(options.seeds):
        jobs, opt_jobs = (
            draw(
                matrices, kinds, weights, gpus=gpus, server=shape, seed=seed, sizes=options.sizes, prune=prune
            )
            for prune in (True, options.pruned)
        )
        optimum, opt_s = timed(opt, opt_jobs, equal)
        best = optimum.plan.throughput
        results.setdefault("opt", []).append((best, 1.0, best / optimum.bound, opt_s, 1.0))
        for name, allocate in BASELINES.items():
            runs = [timed(allocate, jobs, equal) for _ in range(TIMES)]
            took, value = min(each_s for _, each_s in runs), runs[-1][0].throughput
            results.setdefault(name, []).append(
                (value, value / best, value / optimum.bound, took, opt_s / took)
            )
    rows = [summarise(name, values) for name, values in results.items()]
    return rows, f"{gpus} GPUs, {options.seeds} seeds"


def run_end_to_end(options: argparse.Namespace) -> tuple[list[dict[str, object]], str]:
    """Run FIFO with GPU-proportional shares, TUNE and OPT by the rules of the paper."""
    shape = server_shape(options.cpus_per_gpu)
    profiles, kinds = models(options.matrix, shape)
    cluster = Cluster.uniform(options.servers, shape.gpus, cpus=shape.cpus, memory_gb=shape.memory_gb)
    if options.replay is not None:
        specs = read(options.replay, cluster, format="synergy")
    else:
        specs = philly_derived(
            {name: profile.iteration_s for name, profile in profiles.items()},
            jobs=options.jobs,
            jobs_per_hour=options.load or 1.0,
            split=options.mix,
            classes=kinds,
            seed=options.seed,
        )
        if not options.load:
            specs = [replace(spec, arrival_s=0.0) for spec in specs]
    demand_of = demands_by_matrix({name: profile.sensitivity for name, profile in profiles.items()}, shape)
    found: dict[str, dict[str, float]] = {}
    for allocator in ("opt", "proportional", "tune", "tune+top-up"):
        policy = synergy("fifo", allocator, demand_of)
        speed = ShareSpeed(demand_of)
        result, took = timed(simulate, specs, cluster, policy, speed, interval_s=ROUND_S)
        jcts = [job.jct_s for job in result.jobs]
        found[allocator] = {
            "average_h": statistics.fmean(jcts) / 3600,
            "p99_h": float(np.percentile(jcts, 99)) / 3600,
            "makespan_h": max(job.finish_s for job in result.jobs) / 3600,
            "wall_s": took,
        }
    best = found["opt"]
    rows: list[dict[str, object]] = [
        {
            "allocator": name,
            **figures,
            "average_over_opt": figures["average_h"] / best["average_h"] - 1,
            "makespan_over_opt": figures["makespan_h"] / best["makespan_h"] - 1,
        }
        for name, figures in found.items()
    ]
    return rows, f"{len(specs)} jobs on {options.servers * 8} GPUs, FIFO"


def run_published(options: argparse.Namespace) -> tuple[list[dict[str, object]], str]:
    """Run policies of the public simulator."""
    shape = server_shape(3)
    profiles, kinds = models(options.matrix, shape)
    cluster = Cluster.uniform(options.servers, shape.gpus, cpus=shape.cpus, memory_gb=shape.memory_gb)
    began_s = 0.0
    if options.replay is None:
        times = {name: profile.iteration_s for name, profile in profiles.items()}
        number = options.jobs or PUBLIC_JOBS
        specs = philly_derived(times, jobs=number, jobs_per_hour=options.load, classes=kinds)
        counted = PUBLIC_COUNTED if options.jobs is None else range(number)
    else:
        specs = read(options.replay, cluster, format="synergy")
        counted = range(len(specs))
        if options.static:
            began_s = STATIC_S
            specs = [replace(spec, arrival_s=began_s + spec.arrival_s) for spec in specs]
    rows: list[dict[str, object]] = []
    for name in options.policies.split(","):
        order, _, mode = name.partition("+")
        wants = replica_demands(profiles, shape, mode=mode)
        speed = RoundSpeed(wants)
        policy = replica_policy(order, mode, wants, servers=Servers.equal(options.servers, shape))
        result, took = timed(SteppedRun(policy, speed, ROUND_S).run, specs, cluster)
        ends = {job.spec.name: job.finish_s for job in result.jobs}
        jcts = [ends[spec.name] - spec.arrival_s for number, spec in enumerate(specs) if number in counted]
        rows.append(
            {
                "policy": name,
                "average_s": statistics.fmean(jcts),
                "p99_s": float(np.percentile(jcts, 99)),
                "makespan_s": max(ends.values()) - began_s if len(counted) == len(specs) else None,
                "wall_s": took,
            }
        )
    return rows, f"{len(specs)} jobs on {options.servers * 8} GPUs, as in the public code"


def server_shape(cpus_per_gpu: int) -> ServerShape:
    """Return the published servers, with this number of CPUs for each GPU."""
    return ServerShape(gpus=8, cpus=8 * cpus_per_gpu, memory_gb=500)


def models(matrix: Path | None, shape: ServerShape) -> tuple[dict[str, ModelProfile], Models]:
    """Return profiles, measured or made up, and the models of each kind."""
    if matrix is None:
        return model_profiles(shape), MADE_UP_KINDS
    return read_profiles(matrix, cpus_per_gpu=round(shape.fair_cpus)), MEASURED_KINDS


def summarise(name: str, values: Sequence[tuple[float, float, float, float, float]]) -> dict[str, object]:
    """Return one allocator's means over the seeds."""
    throughput, of_opt, of_bound, took, ratio = zip(*values, strict=True)
    return {
        "allocator": name,
        "throughput": statistics.fmean(throughput),
        "of_opt": statistics.fmean(of_opt),
        "worst_of_opt": min(of_opt),
        "of_bound": statistics.fmean(of_bound),
        "time_ms": statistics.median(took) * 1000,
        "opt_takes_times": statistics.median(ratio),
    }


def main() -> None:
    """Measure, print a table, and JSON on request."""
    cluster = (
        option("--matrix", type=Path, help="read sensitivity matrices from this CSV file"),
        option("--servers", type=int, default=16),
    )
    drawn = (
        option("--cpus-per-gpu", type=int, default=3),
        option("--mix", type=mix, default="20,70,10", help="weights of image, text and sound jobs"),
    )
    replay = option("--replay", type=Path, help="lines of id,model,arrival_s,iterations,gpus")
    serve(
        "benchmarks.schedulers.synergy",
        __doc__,
        Command(
            name="allocate",
            about="all allocators on one queue",
            run=run_allocators,
            options=(
                option("--sizes", type=sizes, default="1", help="GPUs of a job, drawn evenly from this list"),
                option("--seeds", type=int, default=10),
                option("--pruned", action="store_true"),
                *drawn,
                *cluster,
            ),
        ),
        Command(
            name="end-to-end",
            about="TUNE and OPT over whole traces",
            run=run_end_to_end,
            options=(
                option("--load", type=float, default=0, help="jobs per hour; 0: all arrive at once"),
                option("--jobs", type=int, default=1500),
                option("--seed", type=int, default=42),
                replay,
                *drawn,
                *cluster,
            ),
        ),
        Command(
            name="published",
            about="the public simulator's rules on its workloads",
            run=run_published,
            options=(
                option("--static", action="store_true", help="submit all jobs of the replay at once"),
                option("--load", type=float, default=9.0, help="jobs per hour, without --replay"),
                option("--jobs", type=int, help="number of jobs, without --replay; as published"),
                option("--policies", default="fifo+fair,fifo+greedy,fifo+tune"),
                replay,
                *cluster,
            ),
        ),
    )


if __name__ == "__main__":
    main()
