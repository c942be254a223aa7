"""One rank of `ina bench allreduce`: times a collective through the switch, and beside it gloo's.

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
from hostlib.wire.encodings import BLOCKS, Block, Numbers

Array = npt.NDArray[np.float32] | npt.NDArray[np.int32]


class Operation(StrEnum):
    """The collectives."""

    ALLREDUCE = "allreduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    BROADCAST = "broadcast"


class Dtype(StrEnum):
    """Types of array elements; both take 4 bytes."""

    FLOAT32 = "float32"
    INT32 = "int32"


CHUNK = 1 << 16  # elements


def by_gloo(data: Data, store: str) -> Callable[[], object]:
    """Return a function that runs the data's collective with torch.distributed's gloo."""
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
    whole, shard = torch.from_numpy(data.array), torch.from_numpy(data.shard)
    match data.operation:
        case Operation.ALLREDUCE:
            return lambda: dist.all_reduce(whole)
        case Operation.REDUCE_SCATTER:
            return lambda: dist.reduce_scatter_tensor(shard, whole)
        case Operation.ALL_GATHER:
            return lambda: dist.all_gather_into_tensor(whole, shard)
        case Operation.BROADCAST:
            return lambda: dist.broadcast(whole, 0)


def by_switch(data: Data) -> Callable[[], object]:
    """Return a function that runs the data's collective through the switch."""
    whole, shard = data.array, data.shard
    numbers: Numbers | None = None if data.array.dtype == np.int32 else "exponent"
    match data.operation:
        case Operation.ALLREDUCE:
            return lambda: ina.allreduce(whole, out=whole, name="gradients")
        case Operation.REDUCE_SCATTER:
            return lambda: ina.reduce_scatter(whole, out=shard, numbers=numbers)
        case Operation.ALL_GATHER:
            return lambda: ina.all_gather(shard, out=whole)
        case Operation.BROADCAST:
            return lambda: ina.broadcast(whole, out=whole)


class Data:
    """The array of a collective, and its expected result.

    Filling and checking allocate no large temporary arrays: their effects on caches and page tables would be
    measured too.
    """

    def __init__(
        self,
        elements: int,
        rank: int,
        size: int,
        dtype: Dtype = Dtype.FLOAT32,
        operation: Operation = Operation.ALLREDUCE,
    ) -> None:
        """Make an array of `elements` elements, of all shards together; of shards, a multiple of `size`."""
        self._rank, self._size = rank, size
        self.operation = operation
        self.array: Array = np.empty(elements, dtype)
        self.shard: Array = np.empty(elements // size, dtype)
        """Result of reduce-scatter at this rank, and input of all-gather there."""
        largest = 1_000_000 if dtype is Dtype.INT32 else 1
        self._base = np.linspace(-largest, largest, elements, dtype=dtype)

    def fill(self) -> None:
        """Fill with values for which the collective's result is known."""
        factor = self.array.dtype.type(self._rank + 1)
        match self.operation:
            case Operation.ALLREDUCE | Operation.REDUCE_SCATTER:
                np.multiply(self._base, factor, out=self.array)
                self.shard.fill(0)
            case Operation.ALL_GATHER:
                self.array.fill(0)
                np.multiply(self._own(self._rank), factor, out=self.shard)
            case Operation.BROADCAST:
                np.multiply(self._base, factor if self._rank == 0 else 0, out=self.array)

    def check(self, bound: float) -> None:
        """Raise unless the collective's result of every rank's `fill` is right within `bound`."""
        total = self._size * (self._size + 1) // 2
        match self.operation:
            case Operation.ALLREDUCE:
                self._compare(self.array, self._base, total, bound)
            case Operation.REDUCE_SCATTER:
                self._compare(self.shard, self._own(self._rank), total, bound)
            case Operation.ALL_GATHER:
                for rank in range(self._size):
                    self._compare(self._own(rank, self.array), self._own(rank), rank + 1, 0.0)
            case Operation.BROADCAST:
                self._compare(self.array, self._base, 1, 0.0)

    def _own(self, rank: int, whole: Array | None = None) -> Array:
        """Return a rank's shard of an array, or of the first rank's fill."""
        part = slice(rank * self.shard.size, (rank + 1) * self.shard.size)
        return self._base[part] if whole is None else whole[part]

    def _compare(self, found: Array, base: Array, factor: int, bound: float) -> None:
        typed = found.dtype.type(factor)
        for start in range(0, found.size, CHUNK):
            part = slice(start, start + CHUNK)
            error = float(np.abs(found[part] - base[part] * typed).max())
            if not error <= bound:
                raise SystemExit(f"rank {self._rank}: wrong result, largest error {error:g}")


def _in_blocks(array: Array, block: Block) -> Contender:
    bound = ina.error_bound(float(ina.size()), ina.size(), numbers=block)
    return Contender(lambda: ina.allreduce(array, out=array, numbers=block), bound)


@dataclass(frozen=True, slots=True)
class Contender:
    """One implementation of the collective."""

    run: Callable[[], object]
    bound: float
    """Largest permitted error."""


def measure(contender: Contender, data: Data) -> tuple[float, float]:
    """Time one collective on freshly filled data, all ranks starting together.

    Returns seconds, and seconds of processor time of all threads of this process.
    """
    data.fill()
    ina.barrier()
    started, worked = time.perf_counter(), time.process_time()
    contender.run()
    elapsed, busy = time.perf_counter() - started, time.process_time() - worked
    data.check(contender.bound)
    return elapsed, busy


def slowest(directory: Path, workers: int) -> dict[str, list[float]]:
    """Read the ranks' times by operation; the time of an iteration is its slowest rank's."""
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
    parser.add_argument("--collective", type=Operation, default=Operation.ALLREDUCE)
    parser.add_argument("--gloo-store")
    parser.add_argument("--blocks", nargs="*", default=[], choices=BLOCKS)
    options = parser.parse_args()

    ina.init()
    data = Data(options.bytes // 4, ina.rank(), ina.size(), options.dtype, options.collective)
    fine = 0 if options.dtype is Dtype.INT32 else 1e-5 * ina.size()
    contenders = {"ina": Contender(by_switch(data), fine)}
    for block in options.blocks:
        contenders[block] = _in_blocks(data.array, block)
    if options.gloo_store:
        contenders["gloo"] = Contender(by_gloo(data, options.gloo_store), fine)

    for contender in contenders.values():  # first uses include connections and page faults
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
