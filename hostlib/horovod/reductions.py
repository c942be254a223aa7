"""Sums, averages and other reductions over ranks: through `torch.distributed`, and so through the switch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, ParamSpec

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from hostlib.horovod.compression import Compressor, NoneCompressor
from hostlib.horovod.handles import check, describe, submit, synchronize
from hostlib.horovod.negotiation import Announcement, NotSupported, Reduction, Request
from hostlib.horovod.world import ProcessSet, Started, global_process_set
from hostlib.torch import InaProcessGroup
from hostlib.wire.encodings import Numbers


class ReduceOp(Enum):
    """Operation of a reduction; the members are also attributes of `hostlib.horovod`."""

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
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}
Tensors = Sequence[torch.Tensor]
Given = ParamSpec("Given")


@dataclass(frozen=True, slots=True)
class How:
    """The caller's arguments of a reduction."""

    op: ReduceOp
    process_set: ProcessSet
    """The ranks that take part."""
    prescale: float = 1.0
    """Multiplies every rank's tensors."""
    postscale: float = 1.0
    """Multiplies the results."""
    numbers: Numbers | None = None
    """Encoding of floats through the switch; None: the job's encoding."""
    residuals: Sequence[NDArray[np.float32]] | None = None
    """Rounding errors of each tensor's earlier sums (`hostlib.allreduce`); None: without error feedback."""

    def compressed(self, compression: type[Compressor]) -> tuple[type[Compressor], How]:
        """Return the compressor to apply to tensors, and the arguments of the compressed tensors' reduction.

        If the switch compresses by an encoding (`Compressor.numbers`), tensors are not compressed before.
        """
        if compression.numbers is not None and _switch(self):
            return NoneCompressor, replace(self, numbers=compression.numbers)
        return compression, self


class Differentiable(torch.autograd.Function):
    """Applies `forth` to tensors, and `back` to the gradients of the results."""

    @staticmethod
    def forward(
        ctx: Any,
        forth: Callable[[Tensors], Tensors],
        back: Callable[[Tensors], Tensors],
        *tensors: torch.Tensor,
    ) -> Any:
        """Return the results.

        Args:
            ctx: Torch's context, which keeps `back` for `backward`.
            forth: Function that computes the results.
            back: Function that computes the gradients.
            *tensors: The arguments of `forth`.
        """
        ctx.back = back
        return tuple(forth(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return the gradients."""
        return (None, None, *ctx.back(gradients))


def grouped(
    kind: str,
    tensors: Tensors,
    name: str | None,
    how: How,
    finish: Callable[[list[torch.Tensor]], Any] = list,
    *,
    in_place: bool = False,
) -> int:
    """Submit a reduction of several tensors.

    Args:
        kind: kind of collective, for errors and the timeline: "allreduce".
        tensors: tensors of the same types and shapes on all ranks.
        name: name by which the ranks' calls are matched; None: match calls without a name by their order.
        how: arguments of the reduction.
        finish: function that computes the result from the reduced tensors.
        in_place: whether to overwrite the tensors with the results.

    Returns:
        A handle for `synchronize` and `poll`.
    """
    checked = [check(tensor) for tensor in tensors]

    def start(announcement: Announcement) -> Started:
        with torch.no_grad():
            data = [tensor.detach() if in_place else tensor.detach().clone() for tensor in checked]
            scales = [_scales(tensor, how) for tensor in data]
            for tensor, (before, _) in zip(data, scales, strict=True):
                _scale(tensor, before)
            works = reduce_all(data, how, announcement.name)

            def end() -> Any:
                with torch.no_grad():
                    for tensor, (_, after) in zip(data, scales, strict=True):
                        _finish(tensor, how, after)
                    return finish(data)

        return works, end

    adds = how.op in (Sum, Average)
    request = Request(
        *(name or "", kind, describe(checked)),
        reduction=Reduction(how.op.value, float(how.prescale), float(how.postscale), how.numbers),
        zeros=[(str(tensor.dtype), list(tensor.shape)) for tensor in checked] if adds else (),
    )
    return submit(how.process_set, request, start)


def reduce_all(data: Tensors, how: How, name: str) -> list[Any]:
    """Start to reduce tensors in place. Averages that torch does not support are computed from sums.

    Args:
        data: The tensors.
        how: Arguments of the reduction.
        name: The collective's name, which is a part of errors. Exponents of a sum are predicted from the
            last sum of the same name (`hostlib.core.foresight`).

    Returns:
        torch's work object for each tensor.
    """
    kinds = [dist.ReduceOp.AVG if _is_averaged(tensor, how.op) else _OF_TORCH[how.op] for tensor in data]
    if (switch := _switch(how)) is None:
        return [
            dist.all_reduce(tensor, kind, group=how.process_set.group, async_op=True)
            for tensor, kind in zip(data, kinds, strict=True)
        ]
    is_numbered = name.startswith(("allreduce.noname.", "grouped_allreduce.noname."))  # by `World.unnamed`
    kept: Sequence[NDArray[np.float32] | None] = how.residuals or [None] * len(data)
    return [
        switch.allreduce_as(
            tensor,
            kind,
            name="" if is_numbered else f"{name} {at}" if at else name,
            numbers=how.numbers,
            residual=residual,
        )
        for at, (tensor, kind, residual) in enumerate(zip(data, kinds, kept, strict=True))
    ]


def _is_averaged(tensor: torch.Tensor, op: ReduceOp) -> bool:
    """Return whether `torch.distributed` computes the average itself: for floats, if `op` is Average.

    If this module divided the sum of floats afterwards, the sum could overflow.
    """
    return op is Average and tensor.dtype.is_floating_point


def _scales(tensor: torch.Tensor, how: How) -> tuple[float, float]:
    """Return the factors to multiply `tensor` by before and after a reduction.

    The switch rounds floats to a fixed point. For float32 and float64 through the switch, both factors are
    applied to the sum, with one rounding instead of two.
    """
    if tensor.dtype in (torch.float32, torch.float64) and _switch(how):
        return 1.0, how.prescale * how.postscale
    return how.prescale, how.postscale


def _switch(how: How) -> InaProcessGroup | None:
    """Return the process group that sends this reduction through the switch; None if gloo carries it out."""
    group = how.process_set.group
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    return group if how.op in (Sum, Average) and isinstance(group, InaProcessGroup) else None


def add_zeros(process_set: ProcessSet, announced: Announcement) -> None:
    """Contribute zeros to an announced reduction, after this rank has called `join`."""
    reduction = announced.reduction
    assert reduction is not None, (
        f"{announced.name} is no reduction: a rank contributes zeros only to reductions"
    )
    data = [
        torch.zeros(list(shape), dtype=getattr(torch, dtype.removeprefix("torch.")))
        for dtype, shape in announced.zeros
    ]
    for work in reduce_all(
        data, How(ReduceOp(reduction.op), process_set, numbers=reduction.numbers), announced.name
    ):
        work.wait()


def _finish(tensor: torch.Tensor, how: How, scale: float) -> None:
    """Convert the reduced tensor to the reduction's result, in place."""
    divisor = how.process_set.size() if how.op is Average and not _is_averaged(tensor, how.op) else 1
    if tensor.dtype.is_floating_point or scale != 1.0:
        _scale(tensor, scale / divisor)
    elif divisor != 1:
        tensor.copy_(tensor.div(divisor, rounding_mode="trunc"))


def _scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiply a tensor in place; integers are rounded towards zero, as in Horovod."""
    if factor == 1.0:
        return
    if tensor.dtype.is_floating_point:
        tensor.mul_(factor)
    else:
        tensor.copy_(tensor.double() * factor)


def operation_of(op: ReduceOp | None, average: bool | None = None) -> ReduceOp:
    """Return the requested operation. Raises ValueError or NotSupported."""
    if average is not None and op is not None:
        raise ValueError("average and op are mutually exclusive: give op")
    if average is not None:
        return Average if average else Sum
    op = Average if op is None else op
    if not isinstance(op, ReduceOp):
        raise ValueError(f"op is {op!r}, must be hvd.Average, Sum, Min, Max or Product")
    if op is Adasum:
        raise NotSupported(
            "Adasum is not supported: use op=hvd.Average, and a learning rate that is scaled by the number "
            "of ranks after some warm-up"
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
    """Start an allreduce; return a handle. For the arguments see `allreduce`.

    Do not use the tensor until `synchronize` has returned.
    """
    how = How(operation_of(op, average), process_set, prescale_factor, postscale_factor)
    return grouped("allreduce", [tensor], name, how, only)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce in place; return a handle. For the arguments see `allreduce`."""
    how = How(operation_of(op, average), process_set, prescale_factor, postscale_factor)
    return grouped("allreduce", [tensor], name, how, lambda _: tensor, in_place=True)


def grouped_allreduce_async(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce of several tensors; return a handle. For the arguments see `allreduce`."""
    how = How(operation_of(op, average), process_set, prescale_factor, postscale_factor)
    return grouped("grouped_allreduce", tensors, name, how)


def grouped_allreduce_async_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce of several tensors in place; return a handle. For the arguments see `allreduce`."""
    how = How(operation_of(op, average), process_set, prescale_factor, postscale_factor)
    return grouped("grouped_allreduce", tensors, name, how, lambda _: list(tensors), in_place=True)


def waiting(start: Callable[Given, int], doc: str) -> Callable[Given, Any]:
    """Return the blocking version of `start`, a call whose name ends with "_async"."""

    @functools.wraps(start)
    def call(*arguments: Given.args, **named: Given.kwargs) -> Any:
        return synchronize(start(*arguments, **named))

    call.__name__ = call.__qualname__ = start.__name__.replace("_async", "")
    call.__doc__ = doc
    return call


allreduce_ = waiting(allreduce_async_, "Reduce a tensor in place; see `allreduce`.")
grouped_allreduce_ = waiting(
    grouped_allreduce_async_, "Reduce several tensors in place as one collective; see `allreduce`."
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
    """Return the average (or the result of `op`) of a tensor over all ranks; differentiable.

    Args:
        tensor: a tensor of the same type and shape on all ranks.
        average: deprecated: True is op=Average, False is op=Sum.
        name: name by which the ranks' calls are matched; None: match calls without a name by their order.
        compression: one of `Compression`.
        op: Average, Sum, Min, Max or Product.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.

    Raises:
        HorovodInternalError: the ranks' calls differ, or the collective failed (see `__cause__`).
        NotSupported: Adasum, or a sparse tensor.
    """
    return grouped_allreduce(
        [tensor], average, name, compression, op, prescale_factor, postscale_factor, process_set
    )[0]


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
    how = How(operation_of(op, average), process_set, prescale_factor, postscale_factor)
    compression, how = how.compressed(compression)
    kind = "grouped_allreduce" if len(tensors) > 1 else "allreduce"
    return travel(
        tensors,
        compression,
        lambda given: synchronize(grouped(kind, given, name, how)),
        lambda gradients: synchronize(grouped("allreduce_gradient", gradients, None, how)),
    )


def travel(
    tensors: Tensors,
    compression: type[Compressor],
    forth: Callable[[Tensors], Tensors],
    back: Callable[[Tensors], Tensors],
) -> list[torch.Tensor]:
    """Compress tensors, apply a collective, and decompress its results; differentiable.

    Args:
        tensors: The tensors.
        compression: The compressor.
        forth: Function that carries out the collective on compressed tensors.
        back: Function that computes the compressed tensors' gradients from the results' gradients.
    """
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = Differentiable.apply(forth, back, *(tensor for tensor, _ in compressed))
    return [
        compression.decompress(tensor, context)
        for tensor, (_, context) in zip(reduced, compressed, strict=True)
    ]


def sparse_allreduce_async(*_: Any, **__: Any) -> int:
    """Raise NotSupported: sparse tensors are not summed."""
    raise NotSupported(
        "sparse_allreduce_async is not supported: use allreduce_async(tensor.to_dense()), or allgather of "
        "indices and values"
    )


def only(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the only tensor of a list."""
    return tensors[0]
