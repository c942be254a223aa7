r"""A worker of known length: computes (asleep), sums, compares every sum, and saves how far it is.

    ina run -np 2 -- python -m benchmarks.service.worker \
        --iterations 50 --compute 0.05 --bytes 100000 --saved FILE

A job that starts again goes on after the last iteration in FILE. With --spread the ranks take turns at being
the slower one, as --seed draws it. At the end each rank writes a line of JSON, which `last_report` finds in
its log. A wrong sum ends it with status 6.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import hostlib as ina
from hostlib import interleave
from hostlib.demos.steps import WRONG_SUM, values


@dataclass(frozen=True, slots=True)
class Report:
    """What a rank did since its last start.

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
    """Return the report in what a rank wrote; None: it has not ended well."""
    lines = [line for line in log.splitlines() if line.startswith("{")]
    return Report(**json.loads(lines[-1])) if lines else None


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker does.

    Attributes:
        iterations: Iterations of the whole job.
        compute_s: Time that an iteration computes, at least.
        size_bytes: Bytes of the gradient.
        spread_s: Most time that a rank computes longer in an iteration.
        seed: By which that time is drawn, evenly, for each rank and iteration.
        integers: Whether gradients are int32, of which every packet carries values; else float32.
    """

    iterations: int
    compute_s: float
    size_bytes: int
    spread_s: float = 0.0
    seed: int = 0
    integers: bool = False

    def computing_s(self, ranks: int) -> npt.NDArray[np.float64]:
        """Return how long each rank computes in each iteration, shape (ranks, iterations)."""
        drawn = [np.random.default_rng([self.seed, rank]).random(self.iterations) for rank in range(ranks)]
        return self.compute_s + self.spread_s * np.array(drawn)

    def gradient(self, rank: int, iteration: int) -> npt.NDArray[np.generic]:
        """Return a rank's contribution to the sum, shape (elements,)."""
        floats = values(rank, iteration, self.size_bytes // 4)
        return floats.astype(np.int32) if self.integers else floats


def train(work: Work, saved: Path) -> Report:
    """Do the iterations that are left; `saved` has their number. Exits with status 6 at a wrong sum."""
    rank, iterations = ina.rank(), work.iterations
    computing_s = work.computing_s(ina.size())[rank]
    first = int(saved.read_text()) if saved.exists() else 0
    spent = dict.fromkeys(("gpu", "network"), 0.0)
    began_at = time.time()
    with interleave.join(rank) as timer:
        for iteration in range(first, iterations):
            ina.progress(iteration, iterations)
            with timer.iteration():
                started_s = time.perf_counter()
                with timer.stage("gpu"):
                    time.sleep(computing_s[iteration])
                computed_s = time.perf_counter()
                with timer.stage("network"):
                    found = ina.allreduce(work.gradient(rank, iteration))
                spent["gpu"] += computed_s - started_s
                spent["network"] += time.perf_counter() - computed_s
            want = np.sum([work.gradient(other, iteration) for other in range(ina.size())], axis=0)
            if not np.array_equal(found, want):
                print(f"wrong sum of {found.size} elements in iteration {iteration}", flush=True)
                sys.exit(WRONG_SUM)
            if rank == 0:
                draft = saved.with_suffix(".draft")
                draft.write_text(str(iteration + 1))
                draft.replace(saved)
    return Report(iterations - first, first, began_at, time.time(), spent["gpu"], spent["network"])


def main() -> None:
    """Do what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--compute", type=float, required=True, metavar="SECONDS", help="of each iteration")
    parser.add_argument("--bytes", type=int, required=True, help="of the gradient")
    parser.add_argument("--spread", type=float, default=0.0, metavar="SECONDS", help="more for some ranks")
    parser.add_argument("--seed", type=int, default=0, help="of who computes longer, and how much")
    parser.add_argument("--integers", action="store_true", help="have int32 gradients")
    parser.add_argument("--saved", type=Path, required=True, help="file of the iterations that are done")
    parser.add_argument("--marks", type=Path, help="file that rank 0 adds a mark to when all is done")
    parser.add_argument("--absent", action="store_true", help="have rank 1 never join the job")
    asked = parser.parse_args()
    if asked.absent and json.loads(os.environ["INA_JOB"])["rank"] == 1:
        time.sleep(3600.0)
    ina.init()
    work = Work(asked.iterations, asked.compute, asked.bytes, asked.spread, asked.seed, asked.integers)
    report = train(work, asked.saved)
    if asked.marks is not None and ina.rank() == 0:
        with asked.marks.open("a") as marks:
            marks.write("x")
    ina.shutdown()
    print(json.dumps(asdict(report)), flush=True)


if __name__ == "__main__":
    main()
