"""One rank of `ina bench allreduce`: times allreduce through the switch, and beside it gloo's.

All are initialised in the same processes and take turns, iteration by iteration, so that other load on the
machine affects all equally. Every rank writes its times, and the processor time of its process; the slowest
rank counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

import hostlib as ina
from hostlib.quantize import BLOCKS, Block

Array = npt.NDArray[np.float32] | npt.NDArray[np.int32]


class Dtype(StrEnum):
    """Types of array elements; both take 4 bytes."""

    FLOAT32 = "float32"
    INT32 = "int32"


CHUNK = 1 << 16  # elements


def gloo_allreduce(array: Array, store: str) -> Callable[[], None]:
    """Return a function that sums `array` over the ranks with torch.distributed's gloo."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=ina.rank(),
        world_size=ina.size(),
        timeout=timedelta(seconds=60),
    )
    tensor = torch.from_numpy(array)
    return lambda: dist.all_reduce(tensor)


class Data:
    """The array to sum, and its expected sum.

    Filling and checking allocate no large temporary arrays: their effects on caches and page tables would be
    measured too.
    """

    def __init__(self, elements: int, rank: int, size: int, dtype: Dtype = Dtype.FLOAT32) -> None:
        self._rank, self._size = rank, size
        self.array: Array = np.empty(elements, dtype)
        largest = 1_000_000 if dtype is Dtype.INT32 else 1
        self._base = np.linspace(-largest, largest, elements, dtype=dtype)

    def fill(self) -> None:
        """Fill with values whose sum over the ranks is known."""
        np.multiply(self._base, self.array.dtype.type(self._rank + 1), out=self.array)

    def check(self, bound: float) -> None:
        """Raise unless the array is the sum of every rank's `fill`, within `bound`."""
        total = self.array.dtype.type(self._size * (self._size + 1) // 2)
        for start in range(0, self.array.size, CHUNK):
            part = slice(start, start + CHUNK)
            error = float(np.abs(self.array[part] - self._base[part] * total).max())
            if not error <= bound:
                raise SystemExit(f"rank {self._rank}: wrong sum, largest error {error:g}")


def _in_blocks(array: Array, block: Block) -> Contender:
    bound = ina.error_bound(float(ina.size()), ina.size(), numbers=block)
    return Contender(lambda: ina.allreduce(array, out=array, numbers=block), bound)


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to sum the array."""

    sum_up: Callable[[], object]
    bound: float
    """Error that it may make."""


def measure(contender: Contender, data: Data) -> tuple[float, float]:
    """Time one allreduce of freshly filled data, all ranks starting together.

    Returns seconds, and seconds of processor time of all threads of this process.
    """
    data.fill()
    ina.barrier()
    started, worked = time.perf_counter(), time.process_time()
    contender.sum_up()
    elapsed, busy = time.perf_counter() - started, time.process_time() - worked
    data.check(contender.bound)
    return elapsed, busy


def slowest(directory: Path, workers: int) -> dict[str, list[float]]:
    """Read the ranks' times by operation; the time of an iteration is that of its slowest rank."""
    return _together(directory, workers, "times_s", max)


def processor_s(directory: Path, workers: int) -> dict[str, list[float]]:
    """Read the processor time of all ranks together by operation."""
    return _together(directory, workers, "processor_s", sum)


def _together(
    directory: Path, workers: int, key: str, join: Callable[[tuple[float, ...]], float]
) -> dict[str, list[float]]:
    ranks = [json.loads((directory / f"{rank}.json").read_text())[key] for rank in range(workers)]
    return {name: [join(of) for of in zip(*(rank[name] for rank in ranks), strict=True)] for name in ranks[0]}


def main() -> None:
    """Run the iterations and write two ``{name: [seconds, …]}`` of this rank: times, and processor times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--dtype", type=Dtype, required=True)
    parser.add_argument("--gloo-store")
    parser.add_argument("--blocks", nargs="*", default=[], choices=BLOCKS)
    options = parser.parse_args()

    ina.init()
    data = Data(options.bytes // 4, ina.rank(), ina.size(), options.dtype)
    array = data.array
    exact = options.dtype is Dtype.INT32
    fine = 0 if exact else 1e-5 * ina.size()
    contenders = {
        "ina": Contender(lambda: ina.allreduce(array, out=array, numbers=None if exact else "exponent"), fine)
    }
    for block in options.blocks:
        contenders[block] = _in_blocks(array, block)
    if options.gloo_store:
        contenders["gloo"] = Contender(gloo_allreduce(array, options.gloo_store), fine)

    for contender in contenders.values():  # first uses pay for connections and page faults
        measure(contender, data)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    busy: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.iterations):
        for name, contender in contenders.items():
            elapsed, worked = measure(contender, data)
            times[name].append(elapsed)
            busy[name].append(worked)
    path = options.output / f"{ina.rank()}.json"
    path.write_text(json.dumps({"times_s": times, "processor_s": busy, "statistics": ina.statistics()}))
    ina.shutdown()
    if options.gloo_store:
        os._exit(0)  # gloo's threads may otherwise complain about peers that closed first


if __name__ == "__main__":
    main()
