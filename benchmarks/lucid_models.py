"""Accuracy of Lucid's models on held-out data, compared with simpler predictors.

`python -m benchmarks.lucid_models throughput [--series FILE --predicted FILE]`: jobs and GPUs asked for in
each ten minutes, one interval ahead. A series has the columns `time`, `submit_gpu_job` and `submit_gpu_num`;
the last sixth is held out. `--predicted` is somebody else's prediction of it, `pred_gpu_job` and
`pred_gpu_num`; then the intervals that it predicts are held out.

`python -m benchmarks.lucid_models durations [--trace FILE]`: durations of jobs. The last fifth of a trace is
held out.

Without files both benchmarks run on generated data.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from benchmarks.fill import console
from benchmarks.lucid_samples import make_counts, make_history
from controller.errors import ControllerError
from controller.scheduling import BadTrace
from controller.scheduling.lucid import submission, train_durations, train_throughput
from controller.scheduling.lucid.throughput import features
from controller.simulator.traces import read

ResultRow = dict[str, object]

INTERVAL_S = 600
DAY = 86_400 // INTERVAL_S
COLUMNS = {"jobs": ("submit_gpu_job", "pred_gpu_job"), "GPUs": ("submit_gpu_num", "pred_gpu_num")}


def main() -> None:
    """Measure, print a table, and JSON on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    throughput = commands.add_parser("throughput", help="submissions in the next ten minutes")
    throughput.set_defaults(run=run_throughput)
    throughput.add_argument("--series", type=Path, help="counts by time")
    throughput.add_argument("--predicted", type=Path, help="somebody else's predictions")
    durations = commands.add_parser("durations", help="durations of jobs")
    durations.set_defaults(run=run_durations)
    durations.add_argument("--trace", type=Path, help="jobs, in any format that 'ina schedule' reads")
    for command in (throughput, durations):
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        rows = options.run(options)
    except (ControllerError, OSError, ValueError) as error:
        raise SystemExit(f"benchmarks.lucid_models: {error}") from None
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows)


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


def show(rows: Sequence[ResultRow]) -> None:
    """Print the table."""
    table = Table()
    for column in rows[0]:
        table.add_column(column, justify="right" if column not in ("predicted", "by") else "left")
    for row in rows:
        table.add_row(
            *(
                "" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell)
                for cell in row.values()
            )
        )
    console().print(table)


if __name__ == "__main__":
    main()
