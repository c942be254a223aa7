"""Reducescatter: an allreduce of which each rank keeps its own rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hostlib.horovod.compression import Compressor, NoneCompressor
from hostlib.horovod.handles import check, synchronize
from hostlib.horovod.movements import grouped_allgather
from hostlib.horovod.reductions import ReduceOp, Sum, grouped, only, operation_of, way
from hostlib.horovod.world import ProcessSet, global_process_set
from hostlib.wire.quantize import Numbers

Tensors = Sequence[torch.Tensor]


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reducescatter of several tensors, for the arguments see `allreduce`; return a handle."""
    return _submit("grouped_reducescatter", tensors, name, op, process_set, prescale_factor, postscale_factor)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reducescatter, for the arguments see `allreduce`; return a handle."""
    return _submit(
        "reducescatter", [tensor], name, op, process_set, prescale_factor, postscale_factor, finish=only
    )


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Return this rank's rows of the average (or as `op` says); for the arguments see `allreduce`.

    If the rows cannot be divided equally, the first ranks have one more. The switch gives sums to all ranks,
    so this is an `allreduce` whose other rows are dropped.

    The gradient is the ranks' gradients one after the other, multiplied by the factors, and for a sum by
    the number of ranks, as in Horovod.
    """
    return grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Tensors,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Return this rank's rows of several tensors; see `reducescatter`."""
    op = operation_of(op)
    compression, numbers = way(compression, process_set, op)
    compressed = [compression.compress(tensor) for tensor in tensors]
    kind = "reducescatter" if len(tensors) == 1 else "grouped_reducescatter"

    def submit(rows: Tensors) -> int:
        return _submit(kind, rows, name, op, process_set, prescale_factor, postscale_factor, numbers=numbers)

    scale = prescale_factor * postscale_factor * (process_set.size() if op is Sum else 1)
    reduced = _Reducescatter.apply(submit, scale, process_set, *(tensor for tensor, _ in compressed))
    return [
        compression.decompress(tensor, context)
        for tensor, (_, context) in zip(reduced, compressed, strict=True)
    ]


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        submit: Callable[[Tensors], int],
        scale: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Any:
        ctx.scale, ctx.process_set = scale, process_set
        return tuple(synchronize(submit(tensors)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        scaled = [gradient * ctx.scale for gradient in gradients]
        return None, None, None, *grouped_allgather(scaled, process_set=ctx.process_set)


def _submit(
    kind: str,
    tensors: Tensors,
    name: str | None,
    op: ReduceOp | None,
    process_set: ProcessSet,
    prescale: float,
    postscale: float,
    *,
    finish: Callable[[list[torch.Tensor]], Any] = list,
    numbers: Numbers | None = None,
) -> int:
    for tensor in tensors:
        if check(tensor).dim() == 0:
            raise ValueError("a tensor without dimensions has no rows to scatter")
    return grouped(
        kind,
        tensors,
        name,
        op,
        prescale,
        postscale,
        process_set,
        finish=lambda whole: finish([each[_own_rows(each, process_set)].clone() for each in whole]),
        numbers=numbers,
    )


def _own_rows(tensor: torch.Tensor, process_set: ProcessSet) -> slice:
    rank, size = process_set.rank(), process_set.size()
    least, more = divmod(tensor.shape[0], size)
    first = rank * least + min(rank, more)
    return slice(first, first + least + (rank < more))
