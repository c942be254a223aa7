"""One rank of `ina bench jobs`: sums repeatedly, beside the workers of other jobs.

All jobs begin together: each leaves a file when its ranks are ready, and waits for those of the others. Each
continues until all have done their iterations, so that the last ones compete with as many jobs as the first.
"""

from __future__ import annotations

import argparse
import json
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import hostlib as ina
from ina.bench.allreduce import Data

PATIENCE_S = 60.0


def throughput_bps(jobs: Sequence[Sequence[float]], bytes_per_iteration: float) -> float:
    """Return the bits per second that all jobs moved while all of them were at work.

    Args:
        jobs: when each job began and when each of its iterations ended, in seconds of one clock.
        bytes_per_iteration: what one iteration of one job moves.

    >>> throughput_bps([[0.0, 1.0, 2.0], [0.5, 1.5, 2.5]], 1.0)
    16.0
    """
    first, last = max(times[0] for times in jobs), min(times[-1] for times in jobs)
    if last <= first:
        raise ValueError("the jobs never ran at the same time")
    done = sum(_iterations(times, last) - _iterations(times, first) for times in jobs)
    return 8 * bytes_per_iteration * done / (last - first)


def _iterations(times: Sequence[float], at: float) -> float:
    """Return the number of iterations done at a time, with the fraction of the one under way."""
    index = min(bisect_right(times, at) - 1, len(times) - 2)
    return index + (at - times[index]) / (times[index + 1] - times[index])


class JobBarrier:
    """A barrier between the jobs: files of a directory tell which of them have reached it."""

    def __init__(self, name: str, directory: Path, job: str, jobs: int) -> None:
        self._name, self._directory, self._job, self._jobs = name, directory, job, jobs
        self._since: float | None = None

    def all_there(self) -> bool:
        """Note that this job has reached it; return True once all have. Exits after `PATIENCE_S`."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            (self._directory / f"{self._job}.{self._name}").touch()
        if len(list(self._directory.glob(f"*.{self._name}"))) == self._jobs:
            return True
        if now > self._since + PATIENCE_S:
            raise SystemExit(f"the other jobs were not {self._name} within {PATIENCE_S:g} s")
        return False


def main() -> None:
    """Run the iterations; rank 0 writes when it began and when each iteration ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--jobs", type=int, required=True)
    options = parser.parse_args()

    ina.init()
    data = Data(options.bytes // 4, ina.rank(), ina.size())
    for _ in range(2):  # first uses pay for page faults
        data.fill()
        ina.allreduce(data.array, op="sum", out=data.array)
        data.check(1e-5 * ina.size())
    ready, done = (JobBarrier(name, options.output, options.name, options.jobs) for name in ("ready", "done"))
    while ina.rank() == 0 and not ready.all_there():
        time.sleep(0.01)
    ina.barrier()
    times = [time.monotonic()]
    array = data.array
    array[0] = 0  # the average of equal arrays stays as it is, until rank 0 says here that it is the last
    while array[0] == 0:
        if ina.rank() == 0 and len(times) > options.iterations and done.all_there():
            array[0] = 1
        ina.allreduce(array, op="average", out=array)
        times.append(time.monotonic())
    if ina.rank() == 0:
        (options.output / f"{options.name}.json").write_text(json.dumps(times))
    ina.shutdown()


if __name__ == "__main__":
    main()
