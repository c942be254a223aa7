"""The tables of docs/results/short-jobs.md: the cost of a good average to other jobs.

`python -m benchmarks.schedulers.short_jobs --output docs/results` runs SRSF, Muri-S and weave-s under the
rules of the papers on 40 generated workloads (eight loads, five seeds), and on 20 of one-GPU jobs of 30 to
600 s, once with exact profiles and durations and once with errors in both, the same for all. `--jobs` is the
number of jobs of each generated workload.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.fill import check, fill, option, parse_options
from bmv2_topos.harness import markdown
from controller.policies.family import SimulationConfig
from controller.simulator.generate import generate
from controller.simulator.pool import run_all
from controller.simulator.runs import JOB_COLUMNS, SimulationOutcome, SimulationTask, Source
from controller.simulator.traces.neutral import write
from controller.vocabulary import Cluster

NAME = "short-jobs"
OURS, OTHERS = "weave-s", ("srsf", "muri-s")
SHORT = "30 to 600 s"
SHORT_LOADS = (1.2, 2.0, 5.0, 50.0)
LOADS = (0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0)
SEEDS = range(5)
NODES = 2
"""Servers for generated jobs: five jobs for each GPU, so that they queue."""

CASES = {"exact": (), "errors": (("noise", 0.5), ("estimate_error", 0.5))}
LENGTHS = {"under 10 min": (0.0, 600.0), "10 min to 2 h": (600.0, 7200.0), "over 2 h": (7200.0, float("inf"))}

Row = dict[str, Any]


def main() -> None:
    """Run, print the tables, and write the page on request."""
    options = parse_options(
        __doc__,
        option("--output", type=Path, metavar="DIR", help=f"write into {NAME}.md"),
        option("--jobs", type=int, default=80, help="jobs of each generated workload"),
        option("--processes", type=int, default=0),
    )
    if options.output is not None:
        check(options.output / f"{NAME}.md")
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(options.jobs, options.processes, Path(folder))
    shown = text(rows)
    print(shown)
    if options.output is not None:
        fill(options.output / f"{NAME}.md", shown)


def measured(jobs: int, processes: int, scratch: Path) -> list[Row]:
    """Return a row for each workload, case and policy.

    Args:
        jobs: Jobs of each generated workload.
        processes: Simulations at a time; 0: one per processor.
        scratch: Folder for the traces of short jobs.
    """
    workloads = [
        (f"generated {load:g}/{seed}", Source(None, "", jobs, load, seed), Cluster.uniform(NODES, 8), seed)
        for load in LOADS
        for seed in SEEDS
    ]
    cluster = Cluster.uniform(NODES, 8)
    workloads += [
        (f"{SHORT}, load {load:g}/{seed}", _short(scratch, jobs, load, seed), cluster, seed)
        for load in SHORT_LOADS
        for seed in SEEDS
    ]
    wanted = [
        (
            name,
            case,
            SimulationTask(
                policy, source, SimulationConfig(cluster, seed=seed, settings=settings), rows=True
            ),
        )
        for name, source, cluster, seed in workloads
        for case, settings in CASES.items()
        for policy in (*OTHERS, OURS)
    ]
    outcomes = run_all([task for _, _, task in wanted], processes=processes)
    return [_row(name, case, o) for (name, case, _), o in zip(wanted, outcomes, strict=True)]


def _short(folder: Path, jobs: int, load: float, seed: int) -> Source:
    """Return a trace in `folder` of jobs of 30 to 600 s on one GPU each: their starts are relatively long."""
    cluster = Cluster.uniform(NODES, 8)
    drawn = generate(jobs, cluster, load=load, seed=seed, shortest_s=30, longest_s=600)
    gpus = sum(spec.gpus for spec in drawn) / len(drawn)
    path = folder / f"short-{load:g}-{seed}.csv"
    write(path, [replace(spec, gpus=1, arrival_s=spec.arrival_s / gpus) for spec in drawn])
    return Source(path)


def _row(name: str, case: str, outcome: SimulationOutcome) -> Row:
    by_length = {length: _mean_s(outcome, *limits_s) for length, limits_s in LENGTHS.items()}
    return {"workload": name, "case": case, **asdict(outcome.metrics), "by_length_s": by_length}


def _mean_s(outcome: SimulationOutcome, least_s: float, most_s: float) -> float | None:
    """Return the mean completion time of jobs of this length alone; None if there are none."""
    alone, jct = JOB_COLUMNS.index("alone_s"), JOB_COLUMNS.index("jct_s")
    found = [float(row[jct]) for row in outcome.rows if least_s <= float(row[alone]) < most_s]
    return statistics.fmean(found) if found else None


def text(rows: Sequence[Row]) -> str:
    """Return all tables."""
    found = {(row["workload"], row["case"], row["policy"]): row for row in rows}
    names = list(dict.fromkeys(row["workload"] for row in rows))
    generated = [name for name in names if name.startswith("generated")]
    short = [name for name in names if name.startswith(SHORT)]
    parts = ["Generated workloads, mean of the seeds, seconds:", _by_load(rows, generated)]
    for which, chosen in (
        (f"{len(generated)} generated workloads", generated),
        (f"{len(short)} workloads of one-GPU jobs of {SHORT}", short),
    ):
        columns = ["durations, profiles", "beside", "average: better", "worst", "slowdown: better", "worst"]
        columns += ["both better", "neither more than 5 % worse"]
        cells = [
            [case, f"`{other}`", *_counts([(found[n, case, other], found[n, case, OURS]) for n in chosen])]
            for case in CASES
            for other in OTHERS
        ]
        parts += [f"`{OURS}` on {which}:", markdown(columns, cells)]
    return "\n\n".join(parts)


def _by_load(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the table of the means over seeds, exact profiles and durations."""
    cells = []
    for load in LOADS:
        for policy in (*OTHERS, OURS):
            found = [
                row
                for row in rows
                if row["workload"] in names
                and row["workload"].startswith(f"generated {load:g}/")
                and (row["case"], row["policy"]) == ("exact", policy)
            ]
            mean = {
                key: statistics.fmean(row[key] for row in found)
                for key in ("avg_jct_s", "median_jct_s", "p99_jct_s", "avg_slowdown", "p99_slowdown")
            }
            lengths = {
                length: statistics.fmean(row["by_length_s"][length] or 0.0 for row in found)
                for length in LENGTHS
            }
            cells.append(
                _cells({**mean, "workload": f"load {load:g}", "policy": policy, "by_length_s": lengths})
            )
    columns = ["workload", "policy", "average", "median", "p99", "slowdown", "its p99", *LENGTHS]
    return markdown(columns, cells)


def _cells(row: Row) -> list[str]:
    times = [f"{row[key]:,.0f}" for key in ("avg_jct_s", "median_jct_s", "p99_jct_s")]
    slowdowns = [f"{row[key]:,.2f}" for key in ("avg_slowdown", "p99_slowdown")]
    lengths = ["-" if value is None else f"{value:,.0f}" for value in row["by_length_s"].values()]
    return [row["workload"], f"`{row['policy']}`", *times, *slowdowns, *lengths]


def _counts(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    """Return the number of workloads on which ours is better, and its worst change, in both figures."""
    changes = [
        [ours[key] / theirs[key] - 1 for theirs, ours in pairs] for key in ("avg_jct_s", "avg_slowdown")
    ]
    cells = []
    for each in changes:
        cells += [f"{sum(change < 0 for change in each)} of {len(each)}", f"{100 * max(each):+.1f} %"]
    both = sum(max(pair) < 0 for pair in zip(*changes, strict=True))
    close = sum(max(pair) <= 0.05 for pair in zip(*changes, strict=True))
    return [*cells, f"{both} of {len(pairs)}", f"{close} of {len(pairs)}"]


if __name__ == "__main__":
    main()
