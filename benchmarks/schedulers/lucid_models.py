"""Accuracy of Lucid's models on held-out data, compared with simpler predictors.

`python -m benchmarks.schedulers.lucid_models throughput [--series FILE --predicted FILE]`: jobs and GPUs
asked for in each ten minutes, one interval ahead. A series has the columns `time`, `submit_gpu_job` and
`submit_gpu_num`; the last sixth is held out. `--predicted` is somebody else's prediction of it,
`pred_gpu_job` and `pred_gpu_num`; then the intervals that it predicts are held out.

`python -m benchmarks.schedulers.lucid_models durations [--trace FILE]`: durations of jobs. The last fifth of
a trace is held out.

Without files both benchmarks run on generated data.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.fill import Command, option, serve
from controller.policies.scheduling import BadTrace
from controller.policies.scheduling.lucid.estimates import Facts, submission, train_durations
from controller.policies.scheduling.lucid.measured import Config
from controller.policies.scheduling.lucid.throughput import features, train_throughput
from controller.policies.scheduling.lucid.usage import Usage
from controller.policies.scheduling.model import Submission
from controller.simulator.traces import read

DAY_S = 86400.0


def make_jobs(count: int, usages: dict[Config, Usage], *, gap_s: float, seed: int = 0) -> list[Submission]:
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


def make_history(count: int, *, seed: int = 0, first_s: float = 0.0) -> tuple[list[Facts], list[float]]:
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
        jobs.append(Facts(user, f"{name}-v{rng.randint(1, 9)}", "vc", gpus, first_s + number * 600.0))
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


ResultRow = dict[str, object]

INTERVAL_S = 600
DAY = 86_400 // INTERVAL_S
COLUMNS = {"jobs": ("submit_gpu_job", "pred_gpu_job"), "GPUs": ("submit_gpu_num", "pred_gpu_num")}


def main() -> None:
    """Measure, print a table, and JSON on request."""
    seed = option("--seed", type=int, default=0)
    series = option("--series", type=Path, help="counts by time")
    predicted = option("--predicted", type=Path, help="somebody else's predictions")
    trace = option("--trace", type=Path, help="jobs, in any format that 'ina schedule' reads")
    serve(
        "benchmarks.schedulers.lucid_models",
        __doc__,
        Command(
            name="throughput",
            about="submissions in the next ten minutes",
            run=lambda options: (run_throughput(options), "submissions"),
            options=(series, predicted, seed),
        ),
        Command(
            name="durations",
            about="durations of jobs",
            run=lambda options: (run_durations(options), "durations"),
            options=(trace, seed),
        ),
    )


def run_throughput(options: argparse.Namespace) -> list[ResultRow]:
    """Compare the model with the interval before, the day before, and somebody else's predictions."""
    if options.series is None:
        counts = list(make_counts(30, interval_s=INTERVAL_S, seed=options.seed))
        return one_ahead("jobs", counts, 0.0, {}, options.seed)
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
    return rows


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
    model = train_throughput(counts[:first], begin_s, interval_s=INTERVAL_S, seed=seed)
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
    return [
        {
            "predicted": what,
            "by": name,
            "mean absolute error": _mean_error(real, guess),
            "R2": _explained(real, guess),
            "training s": took_s if name == "additive model" else None,
        }
        for name, guess in guesses.items()
    ]


def run_durations(options: argparse.Namespace) -> list[ResultRow]:
    """Compare the model with the mean of jobs that have as many GPUs."""
    if options.trace is None:
        jobs, durations_s = make_history(2000, seed=options.seed)
    else:
        specs = read(options.trace)
        jobs = [submission(spec) for spec in specs]
        durations_s = [spec.duration_s for spec in specs]
    first = len(jobs) * 4 // 5
    began = time.perf_counter()
    model = train_durations(jobs[:first], durations_s[:first], seed=options.seed)
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
    return [
        {
            "predicted": "log duration",
            "by": name,
            "mean absolute error": _mean_error(real, guess),
            "R2": _explained(real, guess),
            "training s": took_s if name == "additive model" else None,
        }
        for name, guess in guesses.items()
    ]


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


def _mean_error(real: Sequence[float], guess: Sequence[float]) -> float:
    return statistics.fmean(abs(a - b) for a, b in zip(real, guess, strict=True))


def _explained(real: Sequence[float], guess: Sequence[float]) -> float:
    mean = statistics.fmean(real)
    left = math.fsum((a - b) ** 2 for a, b in zip(real, guess, strict=True))
    return 1 - left / math.fsum((a - mean) ** 2 for a in real)


if __name__ == "__main__":
    main()
