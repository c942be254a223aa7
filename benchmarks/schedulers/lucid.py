"""Lucid's packing tree, its scheduler and its models, on measured or made-up data.

`python -m benchmarks.schedulers.lucid tree [--profiles FILE --pairs FILE]`: accuracy on configurations and on
models that the tree has not seen, and how good the packing decisions are that follow from the classes.

`... schedule [--folder DIR --profiles FILE --pairs FILE]`: Lucid against baselines on one speed model. A
folder has a `cluster_full_log.csv` and the predictions `Philly_ebm.csv` and `Philly_lgb.csv`. `--replica`
takes the rules of the public simulator. Policies are those that `ina schedule` calls `lucid:`.

`... throughput [--series FILE --predicted FILE]`: jobs and GPUs asked for in each ten minutes, one interval
ahead. A series has the columns `time`, `submit_gpu_job` and `submit_gpu_num`; the last sixth is held out.
`--predicted` is somebody else's prediction of it, `pred_gpu_job` and `pred_gpu_num`; then the intervals that
it predicts are held out.

`... durations [--trace FILE]`: durations of jobs. The last fifth of a trace is held out.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.fill import Command, option, serve
from benchmarks.schedulers.trace_files import resolved
from controller.policies.family import SimulationConfig
from controller.policies.scheduling import BadTrace, Submission
from controller.policies.scheduling.lucid.additive import Boosting
from controller.policies.scheduling.lucid.estimates import JobFacts, submission, train_durations
from controller.policies.scheduling.lucid.family import measurements
from controller.policies.scheduling.lucid.measured import Config, Pair
from controller.policies.scheduling.lucid.throughput import features, train_throughput
from controller.policies.scheduling.lucid.usage import (
    GpuUsage,
    PackingTree,
    Sample,
    Size,
    grow,
    sizes_from_pairs,
)
from controller.simulator.policy_run import make
from controller.simulator.runs import Source
from controller.simulator.traces import read
from controller.vocabulary import Cluster

DAY_S = 86400.0


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


def make_history(count: int, *, seed: int = 0, first_s: float = 0.0) -> tuple[list[JobFacts], list[float]]:
    """Make up jobs that have ended, and their durations: users submit the same few jobs again and again."""
    rng = random.Random(seed)
    habits = [
        (
            f"user{u}",
            f"{rng.choice(('train', 'eval', 'sweep'))}-net{u}{k}",
            rng.choice((1, 2, 8)),
            rng.uniform(5, 10),
        )
        for u in range(8)
        for k in range(2)
    ]
    jobs, durations_s = [], []
    for number in range(count):
        user, name, gpus, length = rng.choice(habits)
        jobs.append(JobFacts(user, f"{name}-v{rng.randint(1, 9)}", "vc", gpus, first_s + number * 600.0))
        durations_s.append(math.exp(length + rng.gauss(0, 0.3)))
    return jobs, durations_s


def make_counts(days: int, *, interval_s: int = 600, seed: int = 0) -> Sequence[float]:
    """Make up submissions per interval: many in the afternoon, few at night."""
    rng = random.Random(seed)
    counts = []
    for number in range(int(days * DAY_S / interval_s)):
        hour = number * interval_s / 3600 % 24
        expected = 6 + 5 * math.sin((hour - 9) / 24 * 2 * math.pi)
        counts.append(float(sum(rng.random() < expected / 20 for _ in range(20))))
    return counts


def accuracy(tree: PackingTree, samples: Sequence[tuple[GpuUsage, Size]]) -> float:
    """Return the fraction of samples that the tree classifies correctly."""
    return sum(tree.predict(usage) is size for usage, size in samples) / len(samples)


def held_out_accuracy(
    samples: Sequence[Sample],
    groups: Sequence[Hashable],
    *,
    folds: int = 5,
    fit: Callable[[Sequence[Sample]], PackingTree] = grow,
) -> float:
    """Return the accuracy (0 to 1) on samples whose group was not trained on.

    With the model's name as the group this is the accuracy on unseen models. Groups are assigned to the folds
    in turn, in the order in which they appear.

    Args:
        samples: All samples.
        groups: The group of each sample.
        folds: Number of divisions of the groups; each is left out once.
        fit: Trains a tree on samples.

    Raises BadSample if there are fewer than two folds, or fewer groups than folds.
    """
    names = list(dict.fromkeys(groups))
    if not 2 <= folds <= len(names):
        raise ValueError(f"{folds} folds of {len(names)} groups; want at least 2 folds and a group for each")
    fold_of = {name: number % folds for number, name in enumerate(names)}
    right = 0.0
    for fold in range(folds):
        inside = [s for s, g in zip(samples, groups, strict=True) if fold_of[g] != fold]
        outside = [s for s, g in zip(samples, groups, strict=True) if fold_of[g] == fold]
        right += accuracy(fit(inside), outside) * len(outside)
    return right / len(samples)


ResultRow = dict[str, object]

INTERVAL_S = 600
DAY = 86_400 // INTERVAL_S
COLUMNS = {"jobs": ("submit_gpu_job", "pred_gpu_job"), "GPUs": ("submit_gpu_num", "pred_gpu_num")}


def run_throughput(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Compare the model with the interval before, the day before, and somebody else's predictions."""
    if options.series is None:
        counts = list(make_counts(30, interval_s=INTERVAL_S, seed=options.seed))
        return one_ahead("jobs", counts, 0.0, {}, options.seed), "submissions"
    series = read_series(options.series, [name for name, _ in COLUMNS.values()])
    others = (
        read_series(options.predicted, [name for _, name in COLUMNS.values()]) if options.predicted else {}
    )
    begin_s = min(series)
    rows: list[ResultRow] = []
    for what, (column, predicted) in COLUMNS.items():
        counts = [series[begin_s + number * INTERVAL_S][column] for number in range(len(series))]
        known = {at: row[predicted] for at, row in others.items()}
        rows += one_ahead(what, counts, begin_s, known, options.seed)
    return rows, "submissions"


def one_ahead(
    what: str, counts: Sequence[float], begin_s: float, others: Mapping[float, float], seed: int
) -> list[ResultRow]:
    """Return the mean absolute error of each predictor on the last sixth, or on what `others` predict."""
    times = [begin_s + number * INTERVAL_S for number in range(len(counts))]
    held_out = [number for number, at in enumerate(times) if at in others] or list(
        range(len(counts) * 5 // 6, len(counts))
    )
    first = held_out[0]
    began = time.perf_counter()
    model = train_throughput(
        counts[:first], begin_s, Boosting(interactions=3, seed=seed), interval_s=INTERVAL_S
    )
    took_s = time.perf_counter() - began
    guesses = {
        "additive model": [
            max(0.0, model.model.predict(_before(counts, number, times[number]))) for number in held_out
        ],
        "as in the interval before": [counts[number - 1] for number in held_out],
        "as a day before": [counts[number - DAY] for number in held_out],
        "the mean": [statistics.fmean(counts[:first])] * len(held_out),
    }
    if others:
        guesses["their prediction"] = [others[times[number]] for number in held_out]
    real = [counts[number] for number in held_out]
    return judged(what, real, guesses, took_s)


def run_durations(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Compare the model with the mean of jobs that have as many GPUs."""
    if options.trace is None:
        jobs, durations_s = make_history(2000, seed=options.seed)
    else:
        specs = read(options.trace)
        jobs = [submission(spec) for spec in specs]
        durations_s = [spec.duration_s for spec in specs]
    first = len(jobs) * 4 // 5
    began = time.perf_counter()
    model = train_durations(
        jobs[:first], durations_s[:first], Boosting(interactions=5, max_rounds=2000, seed=options.seed)
    )
    took_s = time.perf_counter() - began
    real = [math.log(duration_s) for duration_s in durations_s[first:]]
    means = {
        gpus: statistics.fmean(
            math.log(d) for job, d in zip(jobs, durations_s[:first], strict=False) if job.gpus == gpus
        )
        for gpus in {job.gpus for job in jobs[:first]}
    }
    overall = statistics.fmean(math.log(d) for d in durations_s[:first])
    guesses = {
        "additive model": [math.log(model.predict_s(job)) for job in jobs[first:]],
        "mean of as many GPUs": [means.get(job.gpus, overall) for job in jobs[first:]],
        "the mean": [overall] * len(real),
    }
    return judged("log duration", real, guesses, took_s), "durations"


def judged(
    what: str, real: Sequence[float], guesses: Mapping[str, Sequence[float]], took_s: float
) -> list[ResultRow]:
    """Return a row for each predictor; the first is the model, which took `took_s` to train."""
    mean = statistics.fmean(real)
    around = math.fsum((value - mean) ** 2 for value in real)
    rows: list[ResultRow] = []
    for name, guess in guesses.items():
        pairs = list(zip(real, guess, strict=True))
        rows.append(
            {
                "predicted": what,
                "by": name,
                "mean absolute error": statistics.fmean(abs(a - b) for a, b in pairs),
                "R2": 1 - math.fsum((a - b) ** 2 for a, b in pairs) / around,
                "training s": None if rows else took_s,
            }
        )
    return rows


def read_series(path: Path, columns: Sequence[str]) -> dict[float, dict[str, float]]:
    """Return the columns by time, in seconds since 1970; every ten minutes has to be there.

    Raises BadTrace with line and column.
    """
    found: dict[float, dict[str, float]] = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        for column in ("time", *columns):
            if column not in (reader.fieldnames or ()):
                raise BadTrace(str(path), 1, column, "missing")
        for line, row in enumerate(reader, 2):
            try:
                at = datetime.fromisoformat(row["time"]).replace(tzinfo=UTC).timestamp()
                found[at] = {column: float(row[column]) for column in columns}
            except (TypeError, ValueError) as error:
                raise BadTrace(str(path), line, "", str(error)) from None
            if at != min(found) + (len(found) - 1) * INTERVAL_S:
                raise BadTrace(str(path), line, "time", f"{row['time']}: want one line for every ten minutes")
    if not found:
        raise BadTrace(str(path), 1, "", "no lines")
    return found


def _before(counts: Sequence[float], number: int, at_s: float) -> Sequence[float | str | None]:
    return features(counts[number - DAY : number], datetime.fromtimestamp(at_s, UTC), interval_s=INTERVAL_S)


NODES, GPUS = 8, 8
PAPER = ("fifo", "sjf", "srtf", "qssf", "tiresias", "lucid-2", "lucid", "online", "no-sharing")
REPLICA = ("fifo", "sjf", "qssf", "srtf", "tiresias", "lucid")


MEASURED = (
    option("--profiles", type=Path),
    option("--pairs", type=Path),
    option("--seed", type=int, default=0),
)


def main() -> None:
    """Measure, print a table, and JSON on request."""
    seed = option("--seed", type=int, default=0)
    series = (
        option("--series", type=Path, help="counts by time"),
        option("--predicted", type=Path, help="somebody else's predictions"),
    )
    trace = option("--trace", type=Path, help="jobs, in any format that 'ina schedule' reads")
    scheduled = (
        option("--folder", type=Path, help="a trace with its predictions"),
        option("--replica", action="store_true", help="the public simulator's rules"),
    )
    serve(
        "benchmarks.schedulers.lucid",
        __doc__,
        Command("tree", "the packing tree's accuracy", run_tree, MEASURED),
        Command("schedule", "Lucid against baselines", run_schedule, (*scheduled, *MEASURED)),
        Command("throughput", "submissions in the next ten minutes", run_throughput, (*series, seed)),
        Command("durations", "durations of jobs", run_durations, (trace, seed)),
    )


def run_tree(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Train on parts and ask for the others."""
    usages, pairs = measurements(background_of(options))
    sizes = sizes_from_pairs(pairs)
    configs = [c for c in usages if c in sizes]
    samples = [(usages[c], sizes[c]) for c in configs]
    models = [c.model for c in configs]

    def fit(inside: Sequence[tuple[GpuUsage, Size]]) -> PackingTree:
        return grow(inside, seed=options.seed)

    whole = fit(samples)
    rows: list[ResultRow] = [
        {
            "price of a leaf": "0.02",
            "leaves": whole.leaves,
            "seen": accuracy(whole, samples),
            "unseen configurations": held_out_accuracy(samples, range(len(samples)), folds=10, fit=fit),
            "unseen models": held_out_accuracy(samples, models, folds=len(set(models)), fit=fit),
            **packing(pairs, {c: whole.predict(usages[c]) for c in configs}),
        }
    ]
    rows.append({"price of a leaf": "(measured classes)", **packing(pairs, sizes)})
    return rows, f"{len(samples)} configurations of {len(set(models))} models, {len(pairs)} pairs"


def packing(pairs: Sequence[Pair], sizes: Mapping[Config, Size], *, good: float = 0.85) -> ResultRow:
    """Return how many of the pairs that may be packed are fast, and how many of the fast ones may."""
    mean = {p: (p.speed_one + p.speed_other) / 2 for p in pairs}
    allowed = [p for p in pairs if sizes[p.one] + sizes[p.other] <= 2]
    fast = sum(mean[p] >= good for p in allowed)
    return {
        "allowed and fast": fast / len(allowed),
        "fast and allowed": fast / sum(m >= good for m in mean.values()),
    }


def run_schedule(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Run the policies."""
    config = background_of(options)
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


def background_of(options: argparse.Namespace) -> SimulationConfig:
    """Return the configuration for the policies."""
    cluster = Cluster.uniform(NODES, GPUS)
    return SimulationConfig(cluster, profiles=options.profiles, pairs=options.pairs, seed=options.seed)


def jobs_of(folder: Path | None, predictor: str, config: SimulationConfig) -> list[Submission]:
    """Read a trace with what a predictor expects of its jobs, or make one up."""
    if folder is None:
        return make_jobs(1000, measurements(config)[0], gap_s=100, seed=config.seed)
    estimates = folder / f"Philly_{predictor}.csv"
    return Source(folder / "cluster_full_log.csv").jobs(replace(config, estimates=estimates))


def run(name: str, policy: str, specs: Sequence[Submission], config: SimulationConfig) -> ResultRow:
    """Simulate one policy; the figures are those that the public simulator's results are compared by."""
    policy, settings = resolved(policy)
    policy_run = make(policy, replace(config, settings=settings))
    began = time.perf_counter()
    jobs = policy_run.run(specs, config.cluster).jobs
    took_s = time.perf_counter() - began
    jcts = [job.jct_s for job in jobs]
    return {
        "policy": name,
        "average_s": statistics.fmean(jcts),
        "p99_s": float(np.percentile(jcts, 99)),
        "last_end_s": max(job.finish_s for job in jobs),
        "wall_s": took_s,
    }


if __name__ == "__main__":
    main()
