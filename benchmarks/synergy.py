"""How close Synergy-TUNE comes to Synergy-OPT, and how the public simulator's figures come out here.

`python -m benchmarks.synergy allocate`: jobs that fill a cluster are drawn from a catalog of made-up tasks,
or from measured sensitivity matrices (`--matrix`). OPT is given its programs as published, with a variable
for every point of a matrix; `--pruned` leaves out the points that cannot be optimal.

`python -m benchmarks.synergy published --matrix FILE`: policies of the public simulator, by its rules, on its
Philly-derived workload or on a replay trace.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.errors import ControllerError
from controller.scheduling import BadTrace, Cluster, JobSpec
from controller.scheduling.synergy import (
    Demand,
    ModelProfile,
    Plan,
    RoundSpeed,
    Sensitivity,
    ServerShape,
    drf,
    greedy,
    opt,
    proportional,
    read_profiles,
    tetris,
    tune,
)
from controller.scheduling.synergy.catalog import TASKS, draw, profile_all
from controller.scheduling.synergy.coded import coded_demands, coded_policy
from controller.scheduling.synergy.philly_derived import philly_derived
from controller.scheduling.synergy.policies import tune_and_top_up
from controller.simulator import Rules, simulate

MEASURED_KINDS = {
    "image": ("alexnet", "res18", "res50", "mobilenet", "shufflenet"),
    "text": ("gnmt", "transformer", "lstm"),
    "sound": ("m5", "deepspeech"),
}
BASELINES: Mapping[str, Callable[[Sequence[Demand], int, ServerShape], Plan]] = {
    "proportional": proportional,
    "greedy": greedy,
    "drf": drf,
    "tetris": tetris,
    "tune": tune,
    "tune+top-up": tune_and_top_up,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One allocator: means over the seeds."""

    allocator: str
    throughput: float
    of_opt: float
    worst_of_opt: float
    of_bound: float
    time_ms: float
    opt_takes_times: float


def main() -> None:
    """Measure, print a table, and JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    allocate = commands.add_parser("allocate", help="all allocators on one queue")
    allocate.set_defaults(run=run_allocators)
    allocate.add_argument("--matrix", type=Path, help="a CSV file of sensitivity matrices")
    allocate.add_argument("--servers", type=int, default=16)
    allocate.add_argument("--cpus-per-gpu", type=int, default=3)
    allocate.add_argument("--mix", default="20,70,10", help="weights of image, text and sound jobs")
    allocate.add_argument("--sizes", default="1", help="GPUs of a job, drawn evenly from this list")
    allocate.add_argument("--seeds", type=int, default=5)
    allocate.add_argument("--pruned", action="store_true")
    published = commands.add_parser("published", help="the public simulator's rules on its workloads")
    published.set_defaults(run=run_published)
    published.add_argument("--matrix", type=Path, required=True, help="a CSV file of sensitivity matrices")
    published.add_argument("--replay", type=Path, help="lines of id,model,arrival_s,iterations,gpus")
    published.add_argument("--static", action="store_true", help="all jobs of the replay are there at once")
    published.add_argument("--servers", type=int, default=16)
    published.add_argument("--load", type=float, default=9.0, help="jobs per hour, without --replay")
    published.add_argument("--policies", default="fifo+fair,fifo+greedy,fifo+tune")
    for command in (allocate, published):
        command.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        rows, title = options.run(options)
    except (ControllerError, OSError, ValueError) as error:
        raise SystemExit(f"benchmarks.synergy: {error}") from None
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows, title)


def run_allocators(options: argparse.Namespace) -> tuple[list[dict[str, object]], str]:
    """Compare the allocators."""
    rows = measure(
        matrix=options.matrix,
        servers=options.servers,
        cpus_per_gpu=options.cpus_per_gpu,
        mix=dict(zip(MEASURED_KINDS, map(float, options.mix.split(",")), strict=True)),
        sizes=[int(size) for size in options.sizes.split(",")],
        seeds=options.seeds,
        pruned=options.pruned,
    )
    title = f"{options.servers * 8} GPUs, mix {options.mix}, {options.seeds} seeds"
    return [asdict(row) for row in rows], title


def run_published(options: argparse.Namespace) -> tuple[list[dict[str, object]], str]:
    """Run policies of the public simulator."""
    profiles = read_profiles(options.matrix)
    shape = ServerShape(gpus=8, cpus=24, memory_gb=500)
    wants = coded_demands(profiles, shape)
    speed = RoundSpeed(wants)
    counted = range(4000, 5000)  # the jobs that the public simulator measures
    if options.replay is None:
        times = {name: profile.iteration_s for name, profile in profiles.items()}
        specs = philly_derived(times, jobs=5600, jobs_per_hour=options.load)
    else:
        specs = read_replay(options.replay, profiles, static=options.static)
        counted = range(len(specs))
    cluster = Cluster.uniform(options.servers, shape.gpus, cpus=shape.cpus, memory_gb=shape.memory_gb)
    rows: list[dict[str, object]] = []
    for name in options.policies.split(","):
        order, _, mode = name.partition("+")
        policy = coded_policy(order, mode, wants, shape=shape, servers=options.servers)
        began = time.perf_counter()
        jobs = simulate(specs, cluster, policy, speed, Rules(interval_s=300)).jobs
        took = time.perf_counter() - began
        ends = {job.spec.id: speed.finish_of_round(job.finish_s) for job in jobs}
        jcts = [ends[spec.id] - spec.submit_s for number, spec in enumerate(specs) if number in counted]
        rows.append(
            {
                "policy": name,
                "average_h": statistics.fmean(jcts) / 3600,
                "p99_h": float(np.percentile(jcts, 99)) / 3600,
                "last_end_h": max(ends.values()) / 3600,
                "wall_s": took,
            }
        )
    return rows, f"{len(specs)} jobs on {options.servers * 8} GPUs, as coded"


def read_replay(path: Path, profiles: Mapping[str, ModelProfile], *, static: bool) -> list[JobSpec]:
    """Read a replay trace; where it is static, its arrivals only tell the order.

    Raises BadTrace, with the line, for anything else than five fields with a known model.
    """
    specs = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fields = line.split(",")
        if len(fields) != 5:
            raise BadTrace(
                str(path), number, "", f"{len(fields)} fields; id, model, arrival, iterations, GPUs"
            )
        name, model, arrival, iterations, gpus = fields
        if model not in profiles:
            raise BadTrace(str(path), number, "model", f"no profile of {model!r}")
        try:
            submit_s = 0.0 if static else float(arrival)
            specs.append(
                JobSpec(name, submit_s, int(gpus), int(iterations), profiles[model].iteration_s, model=model)
            )
        except ValueError as error:
            raise BadTrace(str(path), number, "", str(error)) from None
    return specs


def measure(
    *,
    matrix: Path | None,
    servers: int,
    cpus_per_gpu: int,
    mix: Mapping[str, float],
    sizes: Sequence[int],
    seeds: int,
    pruned: bool,
) -> list[Row]:
    """Run all allocators on the same jobs, for each seed."""
    shape = ServerShape(gpus=8, cpus=8 * cpus_per_gpu, memory_gb=500)
    matrices: Mapping[str, Sensitivity]
    if matrix is None:
        matrices = profile_all()
        kinds = {k: [n for n, t in TASKS.items() if t.kind == k] for k in MEASURED_KINDS}
    else:
        matrices = {n: p.sensitivity for n, p in read_profiles(matrix, cpus_per_gpu=cpus_per_gpu).items()}
        kinds = {k: list(names) for k, names in MEASURED_KINDS.items()}
    results: dict[str, list[tuple[float, float, float, float, float]]] = {}
    for seed in range(seeds):
        drawn = [
            draw(matrices, kinds, mix, gpus=servers * 8, server=shape, seed=seed, sizes=sizes, prune=prune)
            for prune in (True, pruned)
        ]
        jobs, opt_jobs = drawn
        began = time.perf_counter()
        optimum = opt(opt_jobs, servers, shape)
        opt_s = time.perf_counter() - began
        best = optimum.plan.throughput
        results.setdefault("opt", []).append((best, 1.0, best / optimum.bound, opt_s, 1.0))
        for name, allocate in BASELINES.items():
            took, plan = fastest_of(5, allocate, jobs, servers, shape)
            value = plan.throughput
            results.setdefault(name, []).append(
                (value, value / best, value / optimum.bound, took, opt_s / took)
            )
    return [row(name, values) for name, values in results.items()]


def fastest_of(
    times: int,
    allocate: Callable[[Sequence[Demand], int, ServerShape], Plan],
    jobs: Sequence[Demand],
    servers: int,
    shape: ServerShape,
) -> tuple[float, Plan]:
    """Return the shortest of several run times, in seconds, and the plan."""
    took = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        plan = allocate(jobs, servers, shape)
        took = min(took, time.perf_counter() - began)
    return took, plan


def row(name: str, values: Sequence[tuple[float, float, float, float, float]]) -> Row:
    """Summarise one allocator's results."""
    throughput, of_opt, of_bound, took, ratio = zip(*values, strict=True)
    return Row(
        name,
        statistics.fmean(throughput),
        statistics.fmean(of_opt),
        min(of_opt),
        statistics.fmean(of_bound),
        statistics.median(took) * 1000,
        statistics.median(ratio),
    )


def show(rows: Sequence[Mapping[str, object]], title: str) -> None:
    """Print the table."""
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
