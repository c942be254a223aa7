"""Sums of tensors through the switch, as torch's works."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hostlib.collectives import CallOptions, Layer, Op
from hostlib.collectives.handle import Handle
from hostlib.errors import UnsupportedArray
from hostlib.torch.calls import SwitchCalls, nothing
from hostlib.torch.staging import Chunk, Copies, Staged, copies_of
from hostlib.torch.tensors import encode
from hostlib.torch.work import SwitchWork
from hostlib.wire.quantize import Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A reduction of tensors."""

    call: str
    """All that ranks must agree on, for the watch and for errors."""
    op: Op
    root: int | None = None
    """The only rank that gets the result; None: all do."""
    label: str = ""
    """Name of what is summed, if it has one."""
    layer: Layer | None = None
    numbers: Numbers | None = None
    """How floats travel; None: as the job's do."""
    residual: NDArray[np.float32] | None = None
    """What is rounded off, from one sum to the next (`hostlib.allreduce`)."""
    at_once: bool = False
    """The caller waits, and may carry it out. At other ranks the same call may be asynchronous."""


class SwitchSums:
    """Sums through the switch."""

    def __init__(self, calls: SwitchCalls) -> None:
        self._calls = calls
        self._communicator = calls.communicator

    def start(self, tensors: Sequence[torch.Tensor], what: Sum) -> SwitchWork:
        """Sum tensors in place. Raises InaError for what cannot be submitted."""
        staged = next((tensor for tensor in tensors if copies_of(tensor)), None)
        copies = None if staged is None else copies_of(staged)
        work = SwitchWork(
            tensors,
            what.call,
            self._calls.callbacks,
            len(tensors),
            device=None if staged is None else staged.device,
            order=copies.going_up if copies else contextlib.nullcontext,
        )

        def begin(tensor: torch.Tensor) -> Callable[[int], None]:
            return lambda number: self._one(tensor, what, number, work)

        return self._calls.carry_out(what.call, work, [*map(begin, tensors)])

    def _one(self, tensor: torch.Tensor, what: Sum, number: int, work: SwitchWork) -> None:
        label = f"call {number}" + (f", {what.label}" if what.label else "")
        if copies := copies_of(tensor):
            self._staged(tensor, copies, what, label, number, work)
            return
        array, finish, what = self._encode(tensor, what)
        if what.root not in (None, self._communicator.rank):
            finish = nothing
        handle = self._submit(array, what, label)
        handle.on_done(lambda done: work.complete(self._calls.ended(done, finish, number)))

    def _staged(
        self, tensor: torch.Tensor, copies: Copies, what: Sum, label: str, number: int, work: SwitchWork
    ) -> None:
        """Sum a tensor of a device, chunk by chunk; the last one to end, which may be any, ends the work."""
        if what.residual is not None:
            raise UnsupportedArray(
                f"error feedback is for tensors on the CPU, this one is on {tensor.device}"
            )
        staged = Staged(tensor, copies)
        takes = what.root in (None, self._communicator.rank)
        left = len(staged.chunks)

        def end(done: Handle[Any], chunk: Chunk, finish: Callable[[], None]) -> None:
            nonlocal left  # all in the library's thread, but for chunks that have ended already
            error = self._calls.ended(done, finish, number)
            if error is None and takes:
                staged.back(chunk)
            with lock:
                left -= 1
                is_last = left == 0
            if error or is_last:
                work.complete(error, None if error or not takes else staged.end())

        lock = threading.Lock()
        for chunk in staged.chunks:
            if not chunk.array.dtype.is_floating_point:
                chunk.arrived()  # its digits may be made of it here
            array, finish, what = self._encode(chunk.array, what)
            handle = self._submit(array, what, label, chunk.arrived)
            handle.on_done(lambda done, chunk=chunk, finish=finish: end(done, chunk, finish))  # type: ignore[misc]

    def _encode(self, tensor: torch.Tensor, what: Sum) -> tuple[NDArray[Any], Callable[[], None], Sum]:
        """Return the array to sum, a call for its end, and the operation: integers are averaged as sums."""
        divided = what.op == "average" and not tensor.dtype.is_floating_point
        array, finish = encode(tensor, self._communicator.size, divided=divided)
        return array, finish, replace(what, op="sum") if divided else what

    def _submit(
        self, array: NDArray[Any], what: Sum, label: str, arrived: Callable[[], None] | None = None
    ) -> Handle[Any]:
        whole = what.root is None  # a reduce has no numbers of its own
        options = CallOptions(
            out=array,
            name=label,
            nonfinite=self._calls.nonfinite,
            layer=what.layer if whole else None,
            numbers=what.numbers if whole else None,
            residual=what.residual if whole else None,
            arrived=arrived,
            here=what.at_once,
        )
        communicator = self._communicator
        if what.root is None:
            return communicator.start(communicator.sum(array, what.op, options))
        return communicator.start(communicator.sum_at(array, what.root, what.op, options))
