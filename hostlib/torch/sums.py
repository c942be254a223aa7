"""Sums of tensors through the switch, as work objects of torch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray

from hostlib.collectives import CallOptions
from hostlib.collectives.handle import Handle
from hostlib.errors import UnsupportedArray
from hostlib.torch.calls import SwitchCall, SwitchCalls
from hostlib.torch.staging import Chunk, Copies, StagedTensor, copies_of
from hostlib.torch.tensors import encode, nothing
from hostlib.torch.work import SwitchWork


def start_sum(calls: SwitchCalls, tensors: Sequence[torch.Tensor], what: SwitchCall) -> SwitchWork:
    """Start to sum tensors in place; return the work. Raises InaError if they cannot be submitted."""
    staged = next((tensor for tensor in tensors if copies_of(tensor)), None)
    copies = None if staged is None else copies_of(staged)
    work = SwitchWork(
        tensors,
        what.call,
        calls.callbacks,
        len(tensors),
        device=None if staged is None else staged.device,
        order=copies.going_up if copies else contextlib.nullcontext,
    )

    def begin(at: int, tensor: torch.Tensor) -> Callable[[int], None]:
        like = replace(what, series=f"{what.label or what.call} {at}")
        return lambda number: _one(calls, tensor, like, number, work)

    return calls.carry_out(what.call, work, [begin(at, tensor) for at, tensor in enumerate(tensors)])


def _one(calls: SwitchCalls, tensor: torch.Tensor, what: SwitchCall, number: int, work: SwitchWork) -> None:
    label = f"call {number}" + (f", {what.label}" if what.label else "")
    if copies := copies_of(tensor):
        _staged(calls, tensor, copies, what, label, number, work)
        return
    array, finish, what = _encode(calls, tensor, what)
    if what.root not in (None, calls.communicator.rank):
        finish = nothing
    handle = _submit(calls, array, what, label)
    handle.on_done(lambda done: work.complete(calls.ended(done, finish, number)))


def _staged(
    calls: SwitchCalls,
    tensor: torch.Tensor,
    copies: Copies,
    what: SwitchCall,
    label: str,
    number: int,
    work: SwitchWork,
) -> None:
    """Sum a device's tensor chunk by chunk; the work ends when the last chunk has ended."""
    if what.residual is not None:
        raise UnsupportedArray(f"error feedback is for tensors on the CPU, this one is on {tensor.device}")
    staged = StagedTensor(tensor, copies)
    takes = what.root in (None, calls.communicator.rank)
    left = len(staged.chunks)

    def end(done: Handle[Any], chunk: Chunk, finish: Callable[[], None]) -> None:
        nonlocal left  # in the library's thread, except for chunks that have ended already
        error = calls.ended(done, finish, number)
        if error is None and takes:
            staged.back(chunk)
        with lock:
            left -= 1
            is_last = left == 0
        if error or is_last:
            work.complete(error, None if error or not takes else staged.end())

    lock = threading.Lock()
    for at, chunk in enumerate(staged.chunks):
        if not chunk.array.dtype.is_floating_point:
            chunk.arrived()  # `encode` may read it here
        like = replace(what, series=f"{what.series} {at}")
        array, finish, of_chunk = _encode(calls, chunk.array, like)
        handle = _submit(calls, array, of_chunk, label, chunk.arrived)
        handle.on_done(lambda done, chunk=chunk, finish=finish: end(done, chunk, finish))  # type: ignore[misc]


def _encode(
    calls: SwitchCalls, tensor: torch.Tensor, what: SwitchCall
) -> tuple[NDArray[Any], Callable[[], None], SwitchCall]:
    """Return the array to sum, the function that stores the sum in the tensor, and the call.

    The returned call is `what`, except for an average of integers: then it is a sum, and the function divides
    the result.
    """
    divided = what.op == "average" and not tensor.dtype.is_floating_point
    array, finish = encode(tensor, calls.communicator.size, divided=divided)
    return array, finish, replace(what, op="sum") if divided else what


def _submit(
    calls: SwitchCalls,
    array: NDArray[Any],
    what: SwitchCall,
    label: str,
    arrived: Callable[[], None] | None = None,
) -> Handle[Any]:
    whole = what.root is None  # a reduce has no encoding of its own
    options = CallOptions(
        out=array,
        name=label,
        series=what.series,
        nonfinite=calls.nonfinite,
        layer=what.layer if whole else None,
        numbers=what.numbers if whole else None,
        residual=what.residual if whole else None,
        arrived=arrived,
        inline=what.at_once,
    )
    communicator = calls.communicator
    if what.root is None:
        return communicator.start(communicator.sum(array, what.op, options))
    return communicator.start(communicator.sum_at(array, what.root, what.op, options))
