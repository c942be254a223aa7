"""Carry out calls of a process group by its communicator, as work objects of torch."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from hostlib.collectives import CallOptions, Kind, Layer, NonFinite, Op
from hostlib.collectives.arrays import nothing
from hostlib.collectives.communicator import Communicator
from hostlib.collectives.handle import Handle, Result
from hostlib.collectives.watch import Watch
from hostlib.errors import InaError, RanksDisagree, UnsupportedArray
from hostlib.torch import describe
from hostlib.torch.staging import Chunk, Copies, StagedTensor, copies_of
from hostlib.torch.tensors import SUMMED, encode, encode_shards, memory, put
from hostlib.torch.work import Callbacks, SwitchWork
from hostlib.wire.encodings import Numbers

MOST: Final = 1024
"""Maximum number of plans to keep, for programs whose sizes never repeat."""

Tensors: TypeAlias = torch.Tensor | Sequence[torch.Tensor]
"""A tensor, or a sequence with one tensor for each rank, which stands for the concatenation of these
tensors."""

SCATTERED: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)
"""Types that a reduce-scatter through the switch supports; all-gather and broadcast support all types."""
_CPU: Final = torch.device("cpu")
SUMS: Final[tuple[Kind, ...]] = ("allreduce", "reduce")
"""Kinds of calls that sum tensors in place."""
SCATTER: Final = "reduce_scatter"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCall:
    """Description of a torch call for the switch, shared by all calls with the same arguments."""

    kind: Kind
    call: str
    """Text of the properties on which ranks must agree, for the watch and for errors."""
    op: Op = "sum"
    root: int | None = None
    """The only rank that gets a sum, or the source of a broadcast; None: no such rank."""
    label: str = ""
    """Name of the tensor, if it has one."""
    series: str = ""
    """Key of calls with similar values."""
    layer: Layer | None = None
    numbers: Numbers | None = None
    """Encoding of floats; None: the job's encoding."""
    residual: NDArray[np.float32] | None = None
    """Rounding errors to carry from one sum to the next (`hostlib.allreduce`); None: do not carry them."""
    at_once: bool = False
    """True if the caller waits, so that its thread may carry out the call. At other ranks the same call may
    be asynchronous."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to carry out all calls with the same arguments."""

    kind: str
    """Name under which the calls are counted."""
    what: SwitchCall | None = None
    """Description of the call for the switch; None: the calls go around the switch."""
    why_not: str = ""
    """Reason why the calls go around the switch."""


class Plans(dict[tuple[str, tuple[Hashable, ...]], Plan]):
    """Plans by the name of a call and `hostlib.torch.describe.likeness` of its arguments; `MOST` at most.

    A training loop repeats the same calls. To describe a call and to find its path takes longer than to move
    a small tensor.
    """

    def __setitem__(self, key: tuple[str, tuple[Hashable, ...]], plan: Plan) -> None:
        """Store a plan; if there are `MOST` plans already, first remove them all."""
        if len(self) >= MOST:
            self.clear()
        super().__setitem__(key, plan)


@dataclass(frozen=True, slots=True)
class SwitchCalls:
    """Objects and settings that all calls of a group through the switch use."""

    communicator: Communicator
    watch: Watch
    nonfinite: NonFinite
    """Effect of NaN and infinity."""
    adds_float64: bool
    """True if the switch adds float64, as float32."""
    callbacks: Callbacks

    def ended(self, handle: Handle[Result], finish: Callable[[], None], number: int) -> BaseException | None:
        """Store a call's result by `finish`; return the error of the call or of `finish`, or None."""
        try:
            handle.result()
            finish()
        except BaseException as error:
            return self.named(error, number)
        return None

    def named(self, error: BaseException, number: int) -> BaseException:
        """Return `error`; for RanksDisagree, a new error that names the ranks and their calls, if known."""
        if not isinstance(error, RanksDisagree) or (text := self.watch.explain(number)) is None:
            return error
        return RanksDisagree(text, job=error.job, psns=error.psns)

    def end(self, timeout_s: float) -> bool:
        """Wait for calls under way, callbacks and threads; return whether all end within `timeout_s`."""
        until_s = time.monotonic() + timeout_s
        return self.communicator.drain(timeout_s) and self.callbacks.stop(until_s - time.monotonic())


def why_not_switch(
    calls: SwitchCalls, kind: Kind, outputs: Sequence[Tensors], inputs: Sequence[Tensors], op: Any
) -> str | None:
    """Return the reason, the same on all ranks, why a call cannot go through the switch; None if it can.

    Args:
        calls: The group's calls.
        kind: Kind of the call, as in `SwitchCall`.
        outputs: The call's outputs.
        inputs: The input for each output.
        op: The operation of a call that sums.
    """
    tensors = describe.tensors([outputs, inputs])
    operation = describe.operation(op)
    why_no_shards, moves, sums = calls.communicator.why_no_shards, kind not in SUMS, kind in (*SUMS, SCATTER)
    added = SCATTERED if moves else SUMMED
    unknown = describe.type_names(tensor for tensor in tensors if tensor.dtype not in added)
    where = " in a reduce-scatter" if moves else ""
    reasons = (
        (moves and why_no_shards is not None, str(why_no_shards)),
        (
            moves and any(tensor.device != _CPU for tensor in tensors),
            "the switch moves tensors on the CPU only",
        ),
        (sums and operation not in ("sum", "avg"), f"the switch has no operation {operation}"),
        (
            any(tensor.layout is not torch.strided for tensor in tensors),
            f"the switch {'moves' if moves else 'adds'} dense tensors only",
        ),
        (sums and bool(unknown), f"the switch does not add type {unknown}{where}"),
        (
            not moves and not calls.adds_float64 and any(t.dtype is torch.float64 for t in tensors),
            "the switch keeps only 24 of float64's 53 bits (to use it: INA_FLOAT64=switch)",
        ),
        (
            moves and not _fits(kind, outputs, inputs, calls.communicator.size),
            "types or sizes of input and output tensors do not match",
        ),
    )
    return next((reason for holds, reason in reasons if holds), None)


def start(
    calls: SwitchCalls, outputs: Sequence[Tensors], inputs: Sequence[Tensors], what: SwitchCall
) -> SwitchWork:
    """Start a call, a part for each output; return its work.

    Args:
        calls: The group's calls.
        outputs: The call's outputs.
        inputs: The input for each output; the output itself for a sum in place.
        what: The call.

    Raises InaError if the call cannot be submitted.
    """
    tensors = describe.tensors(outputs)
    staged = next((tensor for tensor in tensors if copies_of(tensor)), None)
    copies = None if staged is None else copies_of(staged)
    work = SwitchWork(
        tensors,
        what.call,
        calls.callbacks,
        len(outputs),
        device=None if staged is None else staged.device,
        order=copies.going_up if copies else contextlib.nullcontext,
    )
    number = calls.watch.begin(what.call, work.is_completed)
    label = f"call {number}" + (f", {what.label}" if what.label else "")
    try:
        for at, (output, given) in enumerate(zip(outputs, inputs, strict=True)):
            part = replace(what, label=label, series=f"{what.label or what.call} {at}")
            _start_part(calls, output, given, part, number, work)
    except InaError as error:
        named = calls.named(error, number)
        work.complete(named)
        raise named from error
    except BaseException as error:
        work.complete(error)
        raise
    return work


class _Encoded(NamedTuple):
    """A part of a call as the switch carries it out."""

    array: NDArray[Any]
    out: NDArray[Any]
    finish: Callable[[], None]
    """Stores the result, which is in `out`, in the output."""
    op: Op


def _start_part(
    calls: SwitchCalls, output: Tensors, given: Tensors, what: SwitchCall, number: int, work: SwitchWork
) -> None:
    if what.kind not in SUMS:
        encoded = _encode_move(calls, output, given, what)
    else:
        assert isinstance(output, torch.Tensor)
        if copies := copies_of(output):
            return _start_staged(calls, output, copies, what, number, work)
        encoded = _encode_sum(calls, output, what)
    handle = _submit(calls, encoded, what)
    handle.on_done(lambda done: work.complete(calls.ended(done, encoded.finish, number)))


def _start_staged(
    calls: SwitchCalls, tensor: torch.Tensor, copies: Copies, what: SwitchCall, number: int, work: SwitchWork
) -> None:
    """Sum a device's tensor chunk by chunk; the part ends when the last chunk has ended."""
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
        encoded = _encode_sum(calls, chunk.array, what)
        handle = _submit(calls, encoded, replace(what, series=f"{what.series} {at}"), chunk.arrived)
        handle.on_done(lambda done, chunk=chunk, finish=encoded.finish: end(done, chunk, finish))  # type: ignore[misc]


def _submit(
    calls: SwitchCalls, encoded: _Encoded, what: SwitchCall, arrived: Callable[[], None] | None = None
) -> Handle[Any]:
    options = CallOptions(
        out=encoded.out,
        name=what.label,
        series=what.series,
        nonfinite=calls.nonfinite,
        layer=what.layer,
        numbers=what.numbers,
        residual=what.residual,
        arrived=arrived,
        inline=what.at_once,
    )
    communicator = calls.communicator
    return communicator.start(communicator.request(what.kind, encoded.array, options, encoded.op, what.root))


def _encode_sum(calls: SwitchCalls, tensor: torch.Tensor, what: SwitchCall) -> _Encoded:
    """Encode a tensor to sum in place. An average of integers is a sum, which `finish` divides."""
    divided = what.op == "average" and not tensor.dtype.is_floating_point
    array, finish = encode(tensor, calls.communicator.size, divided=divided)
    takes = what.root in (None, calls.communicator.rank)
    return _Encoded(array, array, finish if takes else nothing, "sum" if divided else what.op)


def _encode_move(calls: SwitchCalls, output: Tensors, given: Tensors, what: SwitchCall) -> _Encoded:
    """Encode tensors of a call that moves shards."""
    communicator = calls.communicator
    target, finish = _target(output)
    source = target if output is given and finish is nothing else _source(given)
    if what.kind == "broadcast":
        if communicator.rank == what.root and target is not source:
            put(target, source)
        array = memory(target.view(torch.uint8))
        return _Encoded(array, array, finish, "sum")
    if what.kind == "all_gather":
        out = memory(target.view(torch.uint8))
        return _Encoded(memory(source.view(torch.uint8)), out, finish, "sum")
    divided = what.op == "average" and not target.is_floating_point()
    if target.dtype is torch.int64 or divided:
        array, out, decode = encode_shards(source, target, communicator.size, divided=divided)
    elif target.dtype is torch.bfloat16:
        rounded = torch.empty(target.shape, dtype=torch.float32)
        array, out, decode = memory(source.float()), memory(rounded), lambda: put(target, rounded)
    else:
        array, out, decode = memory(source), memory(target), nothing

    def end() -> None:
        decode()
        finish()

    return _Encoded(array, out, end, "sum" if divided else what.op)


def _fits(kind: Kind, outputs: Sequence[Tensors], inputs: Sequence[Tensors], size: int) -> bool:
    """Return whether each output and its input have types and sizes that fit a call of this kind."""
    if len(outputs) != len(inputs) or not outputs:
        return False
    for pair in zip(outputs, inputs, strict=True):
        whole, shard = pair if kind != SCATTER else pair[::-1]
        shares = 1 if kind == "broadcast" else size
        if len({tensor.dtype for tensor in describe.tensors(pair)}) != 1:
            return False
        if not isinstance(shard, torch.Tensor) or _elements(whole) != shares * shard.numel():
            return False
        if not isinstance(whole, torch.Tensor) and any(each.numel() != shard.numel() for each in whole):
            return False
    return True


def _elements(tensors: Tensors) -> int:
    return sum(math.prod(tensor.shape) for tensor in describe.tensors([tensors]))


def _source(inputs: Tensors) -> torch.Tensor:
    """Return the input as one flat, contiguous tensor: a view if possible."""
    if isinstance(inputs, torch.Tensor):
        return _flat(inputs.detach() if inputs.requires_grad else inputs)
    return torch.cat([each.detach().reshape(-1) for each in inputs])


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    # Not `view(-1)`, which keeps the stride of a single element.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,))


def _target(output: Tensors) -> tuple[torch.Tensor, Callable[[], None]]:
    """Return a flat, contiguous tensor to fill, and a function that copies it to the output."""
    if isinstance(output, torch.Tensor):
        plain = output.detach() if output.requires_grad else output
        if plain.is_contiguous():
            return _flat(plain), nothing
        flat = torch.empty(plain.numel(), dtype=plain.dtype)
        return flat, lambda: put(plain, flat.view(plain.shape))
    parts = [each.detach() for each in output]
    flat = torch.empty(_elements(output), dtype=parts[0].dtype)

    def hand_out() -> None:
        for part, values in zip(parts, flat.split(parts[0].numel()), strict=True):
            put(part, values.view(part.shape))

    return flat, hand_out if parts[0].numel() else nothing
