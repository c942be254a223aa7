"""Describe calls: operation, type, shape, root; the same on all ranks for the same call."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import torch
import torch.distributed as dist

_OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
_SHAPED = (
    *("broadcast", "allreduce", "reduce", "_allgather_base", "all_gather_single"),
    *("_reduce_scatter_base", "reduce_scatter_single"),
)
"""Calls whose tensors have the same shape on all ranks."""


def operation(op: Any) -> str:
    """Return the name of a reduction, in small letters."""
    return next((name.lower() for name in _OPERATIONS if op == getattr(dist.ReduceOp, name)), str(op))


def kind(name: str, arguments: Iterable[Any]) -> str:
    """Return the name under which calls are counted: "allreduce max float32"."""
    values = list(arguments)
    found = tensors(values)
    values = list(_flat(values))
    words = [name.strip("_")]
    words += [operation(value.reduceOp) for value in values if hasattr(value, "reduceOp")]
    words += [type_name(tensor) for tensor in found[:1]]
    return " ".join(words)


def call(name: str, arguments: Iterable[Any]) -> str:
    """Describe the properties on which ranks must agree: "broadcast float32 of 3x4, rank 0 is root"."""
    values = list(_flat(arguments))
    text = kind(name, values)
    if name in _SHAPED:
        text += "".join(f" of {shape(tensor)}" for tensor in tensors(values))
    roots = [value.rootRank for value in values if hasattr(value, "rootRank")]
    return text + "".join(f", rank {root} is root" for root in roots)


def tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among values, also in lists."""
    return [value for value in _flat(values) if isinstance(value, torch.Tensor)]


def likeness(arguments: Iterable[Any]) -> tuple[Hashable, ...]:
    """Return a key of a call's arguments, without the contents and memory of tensors."""
    return tuple(
        [
            (value.shape, value.dtype, value.layout, value.device)
            if isinstance(value, torch.Tensor)
            else likeness(value)
            if isinstance(value, list | tuple)
            else (getattr(value, "reduceOp", None), getattr(value, "rootRank", None), value.asyncOp)
            for value in arguments
        ]
    )


def type_names(found: Iterable[torch.Tensor]) -> str:
    """Return the names of tensors' types, each once: "int64, uint8"."""
    return ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in found}))


def type_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's type; before it the tensor's layout, if that is not the usual one."""
    name = str(tensor.dtype).removeprefix("torch.")
    return name if tensor.layout is torch.strided else f"{str(tensor.layout).removeprefix('torch.')} {name}"


def shape(tensor: torch.Tensor) -> str:
    """Return a tensor's shape: 3x4; a tensor without dimensions is "scalar"."""
    return "x".join(map(str, tensor.shape)) or "scalar"


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


MOVED: Final = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
)
"""Types of tensors that gloo can send."""


def contiguous(value: Any) -> Any:
    """Replace each dense tensor, also in lists, that is not contiguous or is a negated view, by a copy."""
    if isinstance(value, torch.Tensor):
        is_plain = value.layout is not torch.strided or (value.is_contiguous() and not value.is_neg())
        return value if is_plain else value.detach().resolve_neg().contiguous()
    return [contiguous(each) for each in value] if isinstance(value, list | tuple) else value


def strange(values: Iterable[Any]) -> torch.dtype | None:
    """Return the common type of the tensors among values if gloo can send them only as bytes; else None."""
    found = tensors(values)
    dtypes = {tensor.dtype for tensor in found}
    whole = all(tensor.layout is torch.strided and tensor.is_contiguous() for tensor in found)
    return dtypes.pop() if whole and len(dtypes) == 1 and not dtypes <= {*MOVED} else None


def as_bytes(value: Any) -> Any:
    """Replace each tensor, also in lists, by a view of its bytes, with an additional last dimension."""
    if isinstance(value, torch.Tensor):
        return value.detach().unsqueeze(-1).view(torch.uint8)
    return [as_bytes(each) for each in value] if isinstance(value, list | tuple) else value
