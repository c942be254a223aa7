"""Horovod's interface for PyTorch over the switch: ``import hostlib.horovod as hvd``.

::

    import hostlib.horovod as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Names, arguments and results are Horovod's. Collectives are matched by name over all ranks, then carried out
by the backend "ina" of `torch.distributed`, through the switch or gloo.
Adasum, elastic jobs and sparse tensors raise `NotSupported`, which names the alternative.
"""

from __future__ import annotations

from typing import Any

import hostlib.torch  # noqa: F401 - registers the backend, and says if torch is missing
from hostlib.horovod.compression import Compression, Compressor
from hostlib.horovod.functions import (
    SyncBatchNorm,
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from hostlib.horovod.handles import poll, synchronize
from hostlib.horovod.movements import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from hostlib.horovod.negotiation import HorovodInternalError, NotSupported
from hostlib.horovod.optimizer import DistributedOptimizer
from hostlib.horovod.reductions import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    sparse_allreduce_async,
)
from hostlib.horovod.world import (
    ProcessSet,
    current,
    global_process_set,
    init,
    is_initialized,
    shutdown,
)


def rank() -> int:
    """Return this process's number, from 0."""
    return current().rank


def size() -> int:
    """Return the number of processes."""
    return current().size


def local_rank() -> int:
    """Return this process's number on its machine."""
    return current().places.local_rank


def local_size() -> int:
    """Return the number of processes on this machine."""
    return current().places.local_size


def cross_rank() -> int:
    """Return this machine's number among the machines with a process of this local rank."""
    return current().places.cross_rank


def cross_size() -> int:
    """Return the number of machines with a process of this local rank."""
    return current().places.cross_size


def is_homogeneous() -> bool:
    """Return whether all machines have the same number of processes."""
    return current().places.is_homogeneous


def join(device: int = -1) -> int:
    """Report that this rank has no more data; add zeros to other ranks' sums until all ranks have joined.

    Averages still divide by the number of all ranks. Return the last rank that joined.
    """
    return current().join()


def add_process_set(process_set: ProcessSet | list[int]) -> ProcessSet:
    """Register a process set; all ranks call this, in the same order.

    Raises ValueError if a rank does not exist, or if a set of these ranks is registered already.
    """
    new = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    return current().add_set(new)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set; return whether it was registered."""
    return current().remove_set(process_set)


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Write the times of each tensor's negotiation and reduction to a file in Chrome's trace format.

    Rank 0 writes to ``NAME.json``, rank r > 0 to ``NAME.r.json`` beside it. With `mark_cycles` the file also
    marks, as the start of a cycle, each time at which all ranks have submitted a collective. Raises OSError.
    """
    current().timeline.start(file_path, mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """Close the timeline's file."""
    current().timeline.stop()


def gloo_built() -> bool:
    """Return True: collectives outside the switch go through gloo."""
    return True


gloo_enabled = gloo_built


def mpi_built() -> bool:
    """Return False: MPI is not used."""
    return False


mpi_enabled = mpi_threads_supported = mpi_built
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = mpi_built


def __getattr__(name: str) -> Any:
    if name == "elastic":
        raise NotSupported(
            "hvd.elastic is not supported: torchrun --max-restarts starts ranks again, and scripts go on "
            "from their last checkpoint"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "NotSupported",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
