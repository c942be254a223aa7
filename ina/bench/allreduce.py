"""One rank of `ina bench allreduce`: times a collective, summed in the switch or by another library.

Each library has processes of its own, and the libraries measure in turns (`ina.bench.turns`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import numpy as np
import numpy.typing as npt

import hostlib as ina
from hostlib.wire.encodings import BLOCKS, Block, Numbers
from ina.bench.turns import joined

Array = npt.NDArray[np.float32] | npt.NDArray[np.int32]


class Operation(StrEnum):
    """Collectives that can be measured."""

    ALLREDUCE = "allreduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    BROADCAST = "broadcast"


class Dtype(StrEnum):
    """Types of array elements; both take 4 bytes."""

    FLOAT32 = "float32"
    INT32 = "int32"


CHUNK = 1 << 16  # elements


@dataclass(frozen=True, slots=True)
class LibraryRanks:
    """This process as a rank of a library: its rank, the number of ranks, and the library's calls."""

    rank: int
    size: int
    barrier: Callable[[], object]
    run: Callable[[Data], object]
    """Runs the collective `Data.operation` on the arrays of a `Data`."""


def gloo(store: str, rank: int, size: int) -> LibraryRanks:
    """Join torch.distributed's gloo as a rank; the ranks find each other through the file `store`."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=limit)

    def run(data: Data) -> object:
        whole, shard = torch.from_numpy(data.array), torch.from_numpy(data.shard)
        match data.operation:
            case Operation.ALLREDUCE:
                return dist.all_reduce(whole)
            case Operation.REDUCE_SCATTER:
                return dist.reduce_scatter_tensor(shard, whole)
            case Operation.ALL_GATHER:
                return dist.all_gather_into_tensor(whole, shard)
            case Operation.BROADCAST:
                return dist.broadcast(whole, 0)

    return LibraryRanks(rank, size, dist.barrier, run)


def mpi() -> LibraryRanks:
    """Return this process as a rank of MPI's world, whose processes an MPI launcher has started."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def run(data: Data) -> None:
        match data.operation:
            case Operation.ALLREDUCE:
                world.Allreduce(MPI.IN_PLACE, data.array)
            case Operation.REDUCE_SCATTER:
                world.Reduce_scatter_block(data.array, data.shard)
            case Operation.ALL_GATHER:
                world.Allgather(data.shard, data.array)
            case Operation.BROADCAST:
                world.Bcast(data.array, 0)

    return LibraryRanks(world.rank, world.size, world.Barrier, run)


def by_switch() -> LibraryRanks:
    """Join this rank's INA job, whose collectives go through the switch."""
    ina.init()

    def run(data: Data) -> object:
        whole, shard = data.array, data.shard
        numbers: Numbers | None = None if whole.dtype == np.int32 else "exponent"
        match data.operation:
            case Operation.ALLREDUCE:
                return ina.allreduce(whole, out=whole, name="gradients")
            case Operation.REDUCE_SCATTER:
                return ina.reduce_scatter(whole, out=shard, numbers=numbers)
            case Operation.ALL_GATHER:
                return ina.all_gather(shard, out=whole)
            case Operation.BROADCAST:
                return ina.broadcast(whole, out=whole)

    return LibraryRanks(ina.rank(), ina.size(), ina.barrier, run)


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
        """Allocate an array of `elements` elements, and a shard of `elements` // `size` for this rank.

        The array holds as many elements as the shards of all ranks together. For reduce-scatter and
        all-gather, `elements` must be a multiple of `size`.
        """
        self._rank, self._size = rank, size
        self.operation = operation
        self.array: Array = np.empty(elements, dtype)
        self.shard: Array = np.empty(elements // size, dtype)
        """This rank's result of reduce-scatter, or its input of all-gather."""
        largest = 1_000_000 if dtype is Dtype.INT32 else 1
        self._base = np.linspace(-largest, largest, elements, dtype=dtype)

    def fill(self) -> None:
        """Fill this rank's array and shard with input for which the collective's result is known."""
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
        """Raise SystemExit if an element of the result differs from the exact value by more than `bound`.

        All ranks must have called `fill` before the collective.
        """
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
        """Return a rank's shard of the array `whole`.

        None: return the rank's shard of the input that is the same for all ranks, which `fill` scales.
        """
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
    """One implementation of the collective, such as a library, or ina with 8-bit values."""

    run: Callable[[], object]
    bound: float
    """Maximum permitted error of a result's element."""


def measure(contender: Contender, data: Data, barrier: Callable[[], object]) -> tuple[float, float]:
    """Fill the data, wait for all ranks at a barrier, run the collective, and check its result.

    Returns the elapsed time of the collective, and the processor time that all threads of this process spent
    on it, both in seconds.
    """
    data.fill()
    barrier()
    started, worked = time.perf_counter(), time.process_time()
    contender.run()
    elapsed, busy = time.perf_counter() - started, time.process_time() - worked
    data.check(contender.bound)
    return elapsed, busy


def main() -> None:
    """Join the library's ranks, and run one measurement each time it is this rank's turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--turns", required=True)
    parser.add_argument("--dtype", type=Dtype, required=True)
    parser.add_argument("--collective", type=Operation, default=Operation.ALLREDUCE)
    parser.add_argument("--library", default="ina")
    parser.add_argument("--meet", nargs=3, metavar=("STORE", "RANK", "SIZE"))
    parser.add_argument("--blocks", nargs="*", default=[], choices=BLOCKS)
    options = parser.parse_args()

    if options.library == "ina":
        world = by_switch()
    elif options.meet:
        store, rank, size = options.meet
        world = gloo(store, int(rank), int(size))
    else:
        world = mpi()
    data = Data(options.bytes // 4, world.rank, world.size, options.dtype, options.collective)
    fine = 0 if options.dtype is Dtype.INT32 else 1e-5 * world.size
    contenders = {options.library: Contender(lambda: world.run(data), fine)}
    for block in options.blocks:
        contenders[block] = _in_blocks(data.array, block)
    with joined(options.turns, options.library) as (turns, report):
        for name in turns:
            report(*measure(contenders[name], data, world.barrier))
    if options.library == "ina":
        ina.shutdown()
    elif options.meet:
        os._exit(0)  # gloo's threads may otherwise complain about peers that closed first


if __name__ == "__main__":
    main()
