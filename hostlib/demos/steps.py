"""Compute and sum repeatedly, and check every sum: a worker of ``ina scenario run``.

    ina run -np 2 -- python -m hostlib.demos.steps '{"iterations": 3, "tensors": [1000], "compute_s": 0.001}'

Values are small whole numbers, so that every sum is exact on any path. Keys of the argument: `iterations`;
`tensors` (number of elements of each tensor, summed from the last to the first); `compute_s` (time of
computation, spent asleep); and for one rank `straggler` (rank, compute_s) and `kill` (rank, and the iteration
at whose start its process is killed). At its end each rank prints the times of its iterations, in JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import hostlib as ina

WRONG_SUM = 6


def values(rank: int, iteration: int, elements: int) -> npt.NDArray[np.float32]:
    """Return a rank's contribution to a tensor, of shape (elements,)."""
    index = np.arange(elements, dtype=np.int64)
    return ((index * (rank + 3) + 7 * iteration + rank) % 31 - 15).astype(np.float32)


def iterate(steps: Mapping[str, Any], iteration: int) -> None:
    """Compute, then sum all tensors at once and check them. Exits with status 6 at a wrong sum."""
    rank = ina.rank()
    straggler = steps.get("straggler") or {}
    time.sleep(straggler["compute_s"] if straggler.get("rank") == rank else steps["compute_s"])
    handles = [
        ina.allreduce_async(values(rank, iteration, elements)) for elements in reversed(steps["tensors"])
    ]
    for elements, handle in zip(reversed(steps["tensors"]), handles, strict=True):
        want = np.sum([values(other, iteration, elements) for other in range(ina.size())], axis=0)
        if not np.array_equal(handle.wait(), want):
            print(f"wrong sum of {elements} elements in iteration {iteration}", flush=True)
            sys.exit(WRONG_SUM)


def main() -> None:
    """Run the iterations that the argument of the command line describes, in JSON."""
    steps = json.loads(sys.argv[1])
    kill = steps.get("kill") or {}
    times = []
    ina.init()
    ina.barrier()
    for iteration in range(steps["iterations"]):
        if (kill.get("rank"), kill.get("iteration")) == (ina.rank(), iteration):
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.perf_counter()
        iterate(steps, iteration)
        times.append(time.perf_counter() - began)
    ina.shutdown()
    print(json.dumps({"iteration_s": times}), flush=True)


if __name__ == "__main__":
    main()
