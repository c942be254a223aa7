"""Lucid's packing tree and its scheduler, on measured or made-up profiles.

`python -m benchmarks.lucid tree [--profiles FILE --pairs FILE]`: accuracy on configurations and on models
that the tree has not seen, and how good the packing decisions are that follow from the classes.

`python -m benchmarks.lucid schedule [--folder DIR --profiles FILE --pairs FILE]`: Lucid against baselines on
one speed model. A folder has a `cluster_full_log.csv` and the predictions `Philly_ebm.csv` and
`Philly_lgb.csv`. `--coded` takes the rules of the public simulator.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.errors import ControllerError
from controller.scheduling import BadTrace, Cluster, Job, JobSpec
from controller.scheduling.baselines import fifo, qssf, sjf, srtf
from controller.scheduling.lucid import (
    BinderRules,
    Config,
    LucidPolicy,
    Pair,
    PairSpeed,
    ProfilerRules,
    Sharing,
    Size,
    Usage,
    accuracy,
    config_by_columns,
    grow,
    held_out_accuracy,
    read_pairs,
    read_usages,
    sizes_from_pairs,
)
from controller.scheduling.lucid.coded import (
    CodedLucid,
    CodedPairSpeed,
    HeadOfLine,
    Quota,
    Scored,
    StopOverhead,
    counting_down,
    profile_first,
    remaining_with_overhead,
    two_queues,
    whole_second,
)
from controller.scheduling.lucid.samples import make_jobs, make_pairs, make_usages
from controller.scheduling.policy import Policy, SpeedModel
from controller.scheduling.ranked import Moves, Ranked
from controller.simulator import Rules, simulate
from controller.simulator.speed import Exclusive

GPU_MEMORY_MB = 24_576
NODES, GPUS = 8, 8
PROFILER_NODES, PROFILE_S, PROFILED_GPUS = 2, 80, 4
TIRESIAS_LIMIT = 18_000

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Data:
    """What is scheduled, and what is known of it."""

    usages: Mapping[Config, Usage]
    pairs: Sequence[Pair]
    specs: Sequence[JobSpec]
    usage_of: Callable[[JobSpec], Usage]
    lgb_s: Mapping[str, float]
    labels: Mapping[Config, Size]


def overhead_s(gpus: int) -> float:
    """Return what a preemption costs in the public simulator."""
    return 40.0 if gpus <= 8 else 60.0


def main() -> None:
    """Measure, print a table, and JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    tree = commands.add_parser("tree", help="the packing tree's accuracy")
    tree.set_defaults(run=run_tree)
    schedule = commands.add_parser("schedule", help="Lucid against baselines")
    schedule.set_defaults(run=run_schedule)
    schedule.add_argument("--folder", type=Path, help="a trace with its predictions")
    schedule.add_argument("--coded", action="store_true", help="the public simulator's rules")
    for command in (tree, schedule):
        command.add_argument("--profiles", type=Path)
        command.add_argument("--pairs", type=Path)
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        rows, title = options.run(options)
    except (ControllerError, OSError) as error:
        raise SystemExit(f"benchmarks.lucid: {error}") from None
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows, title)


def run_tree(options: argparse.Namespace) -> tuple[list[Row], str]:
    """Train on parts and ask for the others."""
    usages, pairs = measurements(options)
    sizes = sizes_from_pairs(pairs)
    configs = [c for c in usages if c in sizes]
    samples = [(usages[c], sizes[c]) for c in configs]
    models = [c.model for c in configs]
    rows: list[Row] = []
    for name, prune in (("by cross-validation", None), ("0.02", 0.02)):

        def fit(inside: Sequence[tuple[Usage, Size]], prune: float | None = prune):  # type: ignore[no-untyped-def]
            return grow(inside, prune=prune, seed=options.seed)

        whole = fit(samples)
        guessed = {c: whole.predict(usages[c]) for c in configs}
        rows.append(
            {
                "price of a leaf": name,
                "leaves": whole.leaves,
                "seen": accuracy(whole, samples),
                "unseen configurations": held_out_accuracy(samples, range(len(samples)), folds=10, fit=fit),
                "unseen models": held_out_accuracy(samples, models, folds=len(set(models)), fit=fit),
                **packing(pairs, guessed),
            }
        )
    rows.append({"price of a leaf": "(measured classes)", **packing(pairs, sizes)})
    return rows, f"{len(samples)} configurations of {len(set(models))} models, {len(pairs)} pairs"


def packing(pairs: Sequence[Pair], sizes: Mapping[Config, Size], *, good: float = 0.85) -> Row:
    """Return how many of the pairs that may be packed are fast, and how many of the fast ones may."""
    mean = {p: (p.speed_one + p.speed_other) / 2 for p in pairs}
    allowed = [p for p in pairs if sizes[p.one] + sizes[p.other] <= 2]
    fast = sum(mean[p] >= good for p in allowed)
    return {
        "allowed and fast": fast / len(allowed),
        "fast and allowed": fast / sum(m >= good for m in mean.values()),
    }


def run_schedule(options: argparse.Namespace) -> tuple[list[Row], str]:
    """Run the policies."""
    data = load(options)
    rows = coded_rows(data) if options.coded else paper_rows(data, options.seed)
    first = next(row for row in rows if row["policy"] == "tiresias")
    for row in rows:
        row["tiresias takes"] = float(str(first["average_s"])) / float(str(row["average_s"]))
    return rows, f"{len(data.specs)} jobs on {NODES * GPUS} GPUs, as {'coded' if options.coded else 'paper'}"


def paper_rows(data: Data, seed: int) -> list[Row]:
    """Run Lucid and the baselines on the event-driven simulator, with measured pairs."""
    sizes = sizes_from_pairs(data.pairs)
    tree = grow([(u, sizes[c]) for c, u in data.usages.items() if c in sizes], prune=0.02, seed=seed)
    speed = PairSpeed(data.pairs, restart_s=overhead_s)

    def lucid(profiler: ProfilerRules | None, sharing: Sharing = Sharing.DEFAULT) -> LucidPolicy:
        return LucidPolicy(
            estimate=lambda job: job.spec.estimate_s or job.spec.duration_s,
            measure=lambda job: data.usage_of(job.spec),
            analyse=tree.predict,
            binder=BinderRules(GPU_MEMORY_MB, GPUS),
            profiler=profiler,
            sharing=lambda now_s, idle: sharing,
        )

    one, two = (ProfilerRules(nodes, PROFILE_S, GPUS) for nodes in (1, 2))
    tiresias = Ranked(
        "tiresias",
        lambda job, now_s: (job.attained_s(now_s) * job.spec.gpus > TIRESIAS_LIMIT, job.order),
        moves=Moves.PREEMPT,
        quantum_s=60.0,
    )
    policies: list[tuple[str, Policy, Rules]] = [
        ("fifo", fifo(), Rules()),
        ("sjf", sjf(), Rules()),
        ("srtf", srtf(), Rules()),
        ("qssf", qssf(), Rules()),
        ("tiresias", tiresias, Rules(interval_s=60)),
        ("lucid, 2 nodes profile", lucid(two), Rules()),
        ("lucid, 1 node profiles", lucid(one), Rules()),
        ("lucid, no sharing", lucid(one, Sharing.OFF), Rules()),
    ]
    return [run(name, data.specs, policy, speed, rules) for name, policy, rules in policies]


def coded_rows(data: Data) -> list[Row]:
    """Run the public simulator's rules."""
    seconds, counted = Rules(interval_s=1), counting_down(data.specs)
    rows = [
        run("fifo", data.specs, HeadOfLine("fifo", lambda job: job.order), Exclusive(), seconds),
        run("sjf", data.specs, HeadOfLine("sjf", lambda job: job.spec.duration_s), Exclusive(), seconds),
        run(
            "qssf",
            data.specs,
            HeadOfLine("qssf", lambda j: data.lgb_s[j.spec.id] * j.spec.gpus, rank_new=lambda j: j.spec.gpus),
            Exclusive(),
            seconds,
        ),
        run(
            "srtf",
            counted,
            Quota("srtf", remaining_with_overhead(overhead_s)),
            StopOverhead(overhead_s),
            seconds,
        ),
        run(
            "tiresias",
            counted,
            Quota("tiresias", two_queues(TIRESIAS_LIMIT), running_first=True, period_s=60),
            StopOverhead(overhead_s),
            seconds,
        ),
    ]
    began = time.perf_counter()
    cut, cluster, profiler = profile_first(
        data.specs, nodes=PROFILER_NODES, limit_s=PROFILE_S, max_gpus=PROFILED_GPUS
    )
    done = {s.id for s in data.specs if s.gpus <= PROFILED_GPUS and s.duration_s <= PROFILE_S}
    ends = {
        job.spec.id: job.finish_s
        for job in simulate(cut, cluster, profiler, Exclusive(), seconds).jobs
        if job.spec.id in done
    }
    rest = counting_down(spec for spec in data.specs if spec.id not in done)

    def scored(job: Job) -> Scored:
        estimate_s = job.spec.estimate_s or 1000.0
        size = data.labels[config_by_columns(job.spec)]
        return Scored(estimate_s * job.spec.gpus, size, data.usage_of(job.spec).memory_mb)

    main_cluster = Cluster.uniform(NODES - PROFILER_NODES, GPUS)
    speed = CodedPairSpeed(data.pairs, config_by_columns)
    for job in simulate(rest, main_cluster, CodedLucid(scored), speed, seconds).jobs:
        ends[job.spec.id] = whole_second(job.finish_s)
    rows.append(summary("lucid", data.specs, ends, time.perf_counter() - began))
    return rows


def run(name: str, specs: Sequence[JobSpec], policy: Policy, speed: SpeedModel, rules: Rules) -> Row:
    """Simulate one policy."""
    began = time.perf_counter()
    result = simulate(specs, Cluster.uniform(NODES, GPUS), policy, speed, rules)
    took_s = time.perf_counter() - began
    return summary(name, specs, {job.spec.id: job.finish_s for job in result.jobs}, took_s)


def summary(name: str, specs: Sequence[JobSpec], ends: Mapping[str, float], took_s: float) -> Row:
    """Return the figures that the public simulator's results are compared by."""
    jcts = [ends[spec.id] - spec.submit_s for spec in specs]
    return {
        "policy": name,
        "average_s": statistics.fmean(jcts),
        "p99_s": float(np.percentile(jcts, 99)),
        "last_end_s": max(ends.values()),
        "wall_s": took_s,
    }


def measurements(options: argparse.Namespace) -> tuple[dict[Config, Usage], list[Pair]]:
    """Read profiles and pairs, or make them up."""
    if (options.profiles is None) != (options.pairs is None):
        raise BadTrace("benchmarks.lucid", 0, "", "profiles and pairs belong together: give both or none")
    if options.profiles is None:
        usages = make_usages(20, seed=options.seed)
        return usages, make_pairs(usages, seed=options.seed)
    return read_usages(options.profiles), read_pairs(options.pairs)


def load(options: argparse.Namespace) -> Data:
    """Read a trace and its predictions, or make one up."""
    usages, pairs = measurements(options)
    if options.folder is None:
        specs = make_jobs(1000, usages, gap_s=100, seed=options.seed)
        estimates = {spec.id: spec.estimate_s or spec.duration_s for spec in specs}
        sizes = sizes_from_pairs(pairs)
        return Data(usages, pairs, specs, lambda spec: usages[config_by_columns(spec)], estimates, sizes)
    log = options.folder / "cluster_full_log.csv"
    estimates = predictions(options.folder / "Philly_ebm.csv")
    return Data(
        usages,
        pairs,
        read_log(log, estimates),
        lambda spec: Usage(
            min(100.0, float(spec.extra["gpu_util"])),
            float(spec.extra["gmem_util"]),
            float(spec.extra["gmem"]),
            spec.extra["amp"] == "1",
        ),
        predictions(options.folder / "Philly_lgb.csv"),
        read_labels(options.profiles),
    )


def predictions(path: Path) -> dict[str, float]:
    """Read expected durations by job; those below one second are taken as one."""
    return {row["job_id"]: max(1.0, float(row["priority"])) for row in _rows(path, ("job_id", "priority"))}


def read_labels(path: Path) -> dict[Config, Size]:
    """Read the authors' own classes from the profiles' column `label`."""
    columns = ("model", "dataset", "batchsize", "amp", "label")
    return {
        Config(r["model"], r["dataset"], int(r["batchsize"]), r["amp"] == "1"): Size(int(r["label"]))
        for r in _rows(path, columns)
    }


def read_log(path: Path, estimates: Mapping[str, float]) -> list[JobSpec]:
    """Read jobs from a log with submission time, duration, GPUs, configuration and usage."""
    usage = ("dataset", "amp", "gpu_util", "gmem_util", "gmem")
    columns = ("job_id", "user", "vc", "gpu_num", "submit_time", "duration", "model", "batchsize", *usage)
    rows = list(_rows(path, columns))
    times = [datetime.fromisoformat(row["submit_time"]) for row in rows]
    return [
        JobSpec(
            row["job_id"],
            (when - times[0]).total_seconds(),
            int(row["gpu_num"]),
            float(row["duration"]),
            1.0,
            model=row["model"],
            batch=int(row["batchsize"]),
            estimate_s=estimates[row["job_id"]],
            user=row["user"],
            vc=row["vc"],
            extra={column: row[column] for column in usage},
        )
        for row, when in zip(rows, times, strict=True)
    ]


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        for column in columns:
            if column not in (reader.fieldnames or ()):
                raise BadTrace(str(path), 1, column, "there is no such column")
        return list(reader)


def show(rows: Sequence[Row], title: str) -> None:
    """Print the table."""
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        cells = [row.get(column, "") for column in rows[0]]
        table.add_row(*(f"{cell:,.3f}" if isinstance(cell, float) else str(cell) for cell in cells))
    Console().print(table)


if __name__ == "__main__":
    main()
