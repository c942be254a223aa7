r"""A worker of known length: computes (asleep), sums, compares every sum, and saves its progress.

    ina run -np 2 -- python -m benchmarks.service.worker \
        --iterations 50 --compute 0.05 --bytes 100000 --saved FILE

A job that starts again continues after the last iteration in FILE. At the end each
rank writes a line of JSON, which `last_report` finds in its log. A wrong sum ends it with status 6.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import hostlib as ina
from benchmarks.fill import option, parse_options
from hostlib import interleave
from hostlib.demos.steps import WRONG_SUM, values


@dataclass(frozen=True, slots=True)
class Report:
    """Report of a rank since its last start.

    Attributes:
        sums: Sums that it has compared, all right.
        first: Iteration with which it began; more than 0: it started again.
        began_at: Unix time of the beginning of its first iteration.
        ended_at: Unix time of the end of its last one.
        compute_s: Seconds that it computed, in all.
        network_s: Seconds that it waited for sums, in all.
    """

    sums: int
    first: int
    began_at: float
    ended_at: float
    compute_s: float
    network_s: float


def last_report(log: str) -> Report | None:
    """Return the report in a rank's output; None: it has not ended well."""
    lines = [line for line in log.splitlines() if line.startswith("{")]
    return Report(**json.loads(lines[-1])) if lines else None


def train(iterations: int, compute_s: float, elements: int, saved: Path) -> Report:
    """Do the remaining iterations, counted in `saved`. Exits with status 6 at a wrong sum."""
    rank = ina.rank()
    first = int(saved.read_text()) if saved.exists() else 0
    spent = dict.fromkeys(("gpu", "network"), 0.0)
    began_at = time.time()
    with interleave.join(rank) as timer:
        for iteration in range(first, iterations):
            ina.progress(iteration, iterations)
            with timer.iteration():
                started_s = time.perf_counter()
                with timer.stage("gpu"):
                    time.sleep(compute_s)
                computed_s = time.perf_counter()
                with timer.stage("network"):
                    found = ina.allreduce(values(rank, iteration, elements))
                spent["gpu"] += computed_s - started_s
                spent["network"] += time.perf_counter() - computed_s
            want = np.sum([values(other, iteration, elements) for other in range(ina.size())], axis=0)
            if not np.array_equal(found, want):
                print(f"wrong sum of {found.size} elements in iteration {iteration}", flush=True)
                sys.exit(WRONG_SUM)
            if rank == 0:
                draft = saved.with_suffix(".draft")
                draft.write_text(str(iteration + 1))
                draft.replace(saved)
    return Report(iterations - first, first, began_at, time.time(), spent["gpu"], spent["network"])


def main() -> None:
    """Run the worker with the options."""
    options = parse_options(
        __doc__,
        option("--iterations", type=int, required=True),
        option("--compute", type=float, required=True, metavar="SECONDS", help="computing per iteration"),
        option("--bytes", type=int, required=True, help="size of the gradient"),
        option("--saved", type=Path, required=True, help="file with the number of finished iterations"),
        option("--marks", type=Path, help="file to which rank 0 adds a mark at the end"),
        option("--absent", action="store_true", help="rank 1 sleeps, and never joins the job"),
    )
    if options.absent and json.loads(os.environ["INA_JOB"])["rank"] == 1:
        time.sleep(3600.0)
    ina.init()
    report = train(options.iterations, options.compute, options.bytes // 4, options.saved)
    if options.marks is not None and ina.rank() == 0:
        with options.marks.open("a") as marks:
            marks.write("x")
    ina.shutdown()
    print(json.dumps(asdict(report)), flush=True)


if __name__ == "__main__":
    main()
