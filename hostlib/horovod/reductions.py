"""Sums, averages and other reductions over ranks: through `torch.distributed`, and so through the switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from hostlib.horovod.compression import Compressor, NoneCompressor
from hostlib.horovod.errors import NotSupported
from hostlib.horovod.handles import check, describe, submit, synchronize
from hostlib.horovod.negotiation import Announcement, Reduction
from hostlib.horovod.world import ProcessSet, Started, global_process_set
from hostlib.torch import InaProcessGroup
from hostlib.wire.quantize import Numbers


class ReduceOp(Enum):
    """How the ranks' tensors are combined; also available by these names in `hostlib.horovod`."""

    Average = "average"
    Sum = "sum"
    Adasum = "adasum"
    Min = "min"
    Max = "max"
    Product = "product"


Average: Final = ReduceOp.Average
Sum: Final = ReduceOp.Sum
Adasum: Final = ReduceOp.Adasum
Min: Final = ReduceOp.Min
Max: Final = ReduceOp.Max
Product: Final = ReduceOp.Product

_OF_TORCH: Final = {
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}
Tensors = Sequence[torch.Tensor]


def grouped(
    kind: str,
    tensors: Tensors,
    name: str | None,
    op: ReduceOp | None,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    *,
    average: bool | None = None,
    finish: Callable[[list[torch.Tensor]], Any],
    in_place: bool = False,
    numbers: Numbers | None = None,
    residuals: Sequence[NDArray[np.float32]] | None = None,
) -> int:
    """Submit a reduction of several tensors.

    Args:
        kind: of collective, as errors and the timeline name it: "allreduce".
        tensors: of the same types and shapes on all ranks.
        name: by which the ranks match their calls; None: by the order of calls without a name.
        op: how the tensors are combined; None: as `average` says.
        prescale: multiplies every rank's tensors.
        postscale: multiplies the results.
        process_set: the ranks that take part.
        average: deprecated: True is op=Average, False is op=Sum.
        finish: makes the result of the reduced tensors.
        in_place: whether the tensors themselves are overwritten with the results.
        numbers: how floats travel through the switch; None: as the job says.
        residuals: what earlier sums rounded off each tensor (`hostlib.allreduce`); None: it is left out.

    Returns:
        A handle for `synchronize` and `poll`.
    """
    op = operation_of(op, average)
    checked = [check(tensor) for tensor in tensors]
    reduction = Reduction(op.value, float(prescale), float(postscale), numbers)

    def start(announcement: Announcement) -> Started:
        with torch.no_grad():
            data = [tensor.detach() if in_place else tensor.detach().clone() for tensor in checked]
            scales = [_scales(tensor, op, process_set, prescale, postscale) for tensor in data]
            for tensor, (before, _) in zip(data, scales, strict=True):
                _scale(tensor, before)
            works = reduce_all(data, op, process_set, numbers, residuals)

            def end() -> Any:
                with torch.no_grad():
                    for tensor, (_, after) in zip(data, scales, strict=True):
                        _finish(tensor, op, process_set, after)
                    return finish(data)

        return works, end

    zeros = [(str(tensor.dtype), list(tensor.shape)) for tensor in checked] if op in (Sum, Average) else ()
    return submit(kind, name, describe(checked), process_set, start, reduction=reduction, zeros=zeros)


def reduce_all(
    data: Tensors,
    op: ReduceOp,
    process_set: ProcessSet,
    numbers: Numbers | None,
    residuals: Sequence[NDArray[np.float32]] | None = None,
) -> list[Any]:
    """Begin to reduce tensors in place.

    Args:
        data: the tensors, which are overwritten.
        op: how they are combined; averages that torch does not take are sums, to be divided.
        process_set: the ranks that take part.
        numbers: how floats travel through the switch; None: as the job says.
        residuals: of each tensor, as for `grouped`.

    Returns:
        torch's work for each tensor.
    """
    kinds = [dist.ReduceOp.AVG if _is_averaged(tensor, op) else _of_torch(op) for tensor in data]
    kept: Sequence[NDArray[np.float32] | None] = residuals or [None] * len(data)
    if numbers is not None and (switch := _switch(process_set, op)):
        return [
            switch.allreduce_as(tensor, kind, numbers=numbers, residual=residual)
            for tensor, kind, residual in zip(data, kinds, kept, strict=True)
        ]
    return [
        dist.all_reduce(tensor, kind, group=process_set.group, async_op=True)
        for tensor, kind in zip(data, kinds, strict=True)
    ]


def _of_torch(op: ReduceOp) -> Any:
    return _OF_TORCH[Sum if op is Average else op]


def _is_averaged(tensor: torch.Tensor, op: ReduceOp) -> bool:
    """Return whether the average is torch's own: in the wire's precision, which cannot overflow."""
    return op is Average and tensor.dtype.is_floating_point


def _scales(
    tensor: torch.Tensor, op: ReduceOp, process_set: ProcessSet, prescale: float, postscale: float
) -> tuple[float, float]:
    """Return the factors before and after a reduction.

    The switch rounds floats to a fixed point. Where the sum has the range of the tensor's type, it is the
    sum that is scaled: with one rounding instead of two.
    """
    if tensor.dtype in (torch.float32, torch.float64) and _switch(process_set, op):
        return 1.0, prescale * postscale
    return prescale, postscale


def _switch(process_set: ProcessSet, op: ReduceOp) -> InaProcessGroup | None:
    """Return the process group that carries such a reduction through the switch; None if none does."""
    group = process_set.group
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    return group if op in (Sum, Average) and isinstance(group, InaProcessGroup) else None


def way(
    compression: type[Compressor], process_set: ProcessSet, op: ReduceOp
) -> tuple[type[Compressor], Numbers | None]:
    """Return the compressor to apply to tensors, and how floats travel through the switch."""
    if compression.numbers is not None and _switch(process_set, op):
        return NoneCompressor, compression.numbers
    return compression, None


def add_zeros(process_set: ProcessSet, announced: Announcement) -> None:
    """Take part in a reduction with zeros, after `join`."""
    reduction = announced.reduction
    assert reduction is not None, f"{announced.name} has zeros, which only a reduction has"
    data = [
        torch.zeros(list(shape), dtype=getattr(torch, dtype.removeprefix("torch.")))
        for dtype, shape in announced.zeros
    ]
    for work in reduce_all(data, ReduceOp(reduction.op), process_set, reduction.numbers):
        work.wait()


def _finish(tensor: torch.Tensor, op: ReduceOp, process_set: ProcessSet, scale: float) -> None:
    """Make a reduction's result of what the ranks' tensors were reduced to."""
    divisor = process_set.size() if op is Average and not _is_averaged(tensor, op) else 1
    if tensor.dtype.is_floating_point or scale != 1.0:
        _scale(tensor, scale / divisor)
    elif divisor != 1:
        tensor.copy_(tensor.div(divisor, rounding_mode="trunc"))


def _scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiply a tensor in place; integers are rounded towards zero, as Horovod's are."""
    if factor == 1.0:
        return
    if tensor.dtype.is_floating_point:
        tensor.mul_(factor)
    else:
        tensor.copy_(tensor.double() * factor)


def operation_of(op: ReduceOp | None, average: bool | None = None) -> ReduceOp:
    """Return the operation that the caller asks for. Raises ValueError or NotSupported."""
    if average is not None and op is not None:
        raise ValueError("average and op are mutually exclusive: give op")
    if average is not None:
        return Average if average else Sum
    op = Average if op is None else op
    if not isinstance(op, ReduceOp):
        raise ValueError(f"op is {op!r}, must be hvd.Average, Sum, Min, Max or Product")
    if op is Adasum:
        raise NotSupported(
            "Adasum is not supported: op=hvd.Average, and a learning rate that is scaled by the number of "
            "ranks after some warm-up"
        )
    return op


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce, for the arguments see `allreduce`; return a handle.

    Do not use the tensor until it is synchronized.
    """
    return grouped(
        "allreduce",
        [tensor],
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        average=average,
        finish=only,
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce in place, for the arguments see `allreduce`; return a handle."""
    return grouped(
        "allreduce",
        [tensor],
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        average=average,
        finish=lambda _: tensor,
        in_place=True,
    )


def grouped_allreduce_async(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce of several tensors, for the arguments see `allreduce`; return a handle."""
    return grouped(
        "grouped_allreduce",
        tensors,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        average=average,
        finish=list,
    )


def grouped_allreduce_async_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce of several tensors in place, for the arguments see `allreduce`; return a handle."""
    return grouped(
        "grouped_allreduce",
        tensors,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        average=average,
        finish=lambda _: list(tensors),
        in_place=True,
    )


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], name: str | None, *tensors: torch.Tensor) -> Any:
        ctx.options = options
        kind = "grouped_allreduce" if len(tensors) > 1 else "allreduce"
        return tuple(synchronize(_submit(kind, tensors, name, options)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        sums = synchronize(_submit("allreduce_gradient", gradients, None, ctx.options))
        return (None, None, *sums)


def _submit(kind: str, tensors: Tensors, name: str | None, options: dict[str, Any]) -> int:
    return grouped(
        kind,
        tensors,
        name,
        options["op"],
        options["prescale"],
        options["postscale"],
        options["process_set"],
        average=options["average"],
        finish=list,
        numbers=options["numbers"],
    )


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the average (or as `op` says) of a tensor over all ranks; gradients flow through it.

    Args:
        tensor: of the same type and shape on all ranks.
        average: deprecated: True is op=Average, False is op=Sum.
        name: by which the ranks find each other's calls; None: by the order of calls without a name.
        compression: how it travels, one of `Compression`.
        op: Average, Sum, Min, Max or Product.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.

    Raises:
        HorovodInternalError: the ranks differ, or it failed; its cause says how.
        NotSupported: Adasum, or a sparse tensor.
    """
    return grouped_allreduce(
        [tensor], average, name, compression, op, prescale_factor, postscale_factor, process_set
    )[0]


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor in place; see `allreduce`."""
    handle = allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    result: torch.Tensor = synchronize(handle)
    return result


def grouped_allreduce(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce several tensors as one collective; see `allreduce`."""
    compression, numbers = way(compression, process_set, operation_of(op, average))
    options = {
        "op": op,
        "average": average,
        "prescale": prescale_factor,
        "postscale": postscale_factor,
        "process_set": process_set,
        "numbers": numbers,
    }
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = _Allreduce.apply(options, name, *(tensor for tensor, _ in compressed))
    return [
        compression.decompress(tensor, context)
        for tensor, (_, context) in zip(reduced, compressed, strict=True)
    ]


def grouped_allreduce_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce several tensors in place as one collective; see `allreduce`."""
    handle = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    )
    result: list[torch.Tensor] = synchronize(handle)
    return result


def sparse_allreduce_async(*_: Any, **__: Any) -> int:
    """Raise NotSupported: sparse tensors are not summed."""
    raise NotSupported(
        "sparse_allreduce_async is not supported: allreduce_async(tensor.to_dense()), or allgather of "
        "indices and values"
    )


def only(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the one tensor."""
    return tensors[0]
