"""Handles of collectives under way, for Horovod's `poll` and `synchronize`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from hostlib.errors import UnsupportedArray
from hostlib.horovod.negotiation import Announcement, NotSupported, Request
from hostlib.horovod.world import ProcessSet, Started, Submitted, current

_numbers = itertools.count(1)
_under_way: dict[int, Submitted] = {}


def submit(process_set: ProcessSet, request: Request, start: Callable[[Announcement], Started]) -> int:
    """Submit a collective; it starts when all ranks of its process set have submitted it.

    Args:
        process_set: the ranks that take part.
        request: this rank's request; requests without a name are matched across ranks by their order.
        start: starts the collective once all have submitted it.

    Returns:
        A handle for `synchronize` and `poll`.

    Raises:
        ValueError: this rank is not in the process set, the set was removed, or a collective of this name is
            under way.
    """
    world, number = current(), process_set.process_set_id
    if number is None:
        raise ValueError(f"{process_set} is not registered: call hvd.add_process_set() first")
    if not process_set.included():
        raise ValueError(f"rank {world.rank} is not in {process_set}")
    name = request.name or world.unnamed(request.kind, number)
    handle, submitted = next(_numbers), world.submit(replace(request, name=name, process_set=number), start)
    _under_way[handle] = submitted
    return handle


def poll(handle: int) -> bool:
    """Return whether `synchronize` would return at once. Raises ValueError for an unknown handle."""
    operation = _under_way.get(handle)
    if operation is None:
        raise ValueError(f"handle {handle} is not under way: it was synchronized, or never existed")
    return operation.done()


def synchronize(handle: int) -> Any:
    """Wait for a collective; return its tensor, or tensors; None for an unknown handle, as Horovod does.

    Raises HorovodInternalError.
    """
    operation = _under_way.pop(handle, None)
    if operation is None:
        return None
    result = operation.result()
    current().timeline.end(operation.request.title)
    return result


def check(tensor: Any) -> torch.Tensor:
    """Return the argument if it is a dense tensor on the CPU.

    Raises TypeError if it is no tensor, NotSupported if it is sparse, UnsupportedArray if it is on a device.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"the argument must be a tensor, not a {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise NotSupported(
            "sparse tensors are not summed: pass tensor.to_dense(), or sparse_as_dense=True to the optimizer"
        )
    if tensor.device.type != "cpu":
        raise UnsupportedArray(f"a tensor is on {tensor.device}, must be on the CPU: pass tensor.cpu()")
    return tensor


def describe(tensors: Sequence[torch.Tensor], *, rows: bool = True) -> str:
    """Return types and shapes of tensors, without the number of rows unless `rows` is True."""
    return ", ".join(
        f"{str(tensor.dtype).removeprefix('torch.')} of {_shape(tensor.shape if rows else tensor.shape[1:])}"
        for tensor in tensors
    )


def _shape(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "1"
