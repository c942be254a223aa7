"""Reduce-scatter, all-gather and broadcast of tensors through the switch, as work objects of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch

from hostlib.collectives import CallOptions
from hostlib.collectives.handle import Handle
from hostlib.torch import describe
from hostlib.torch.calls import Kind, SwitchCall, SwitchCalls
from hostlib.torch.tensors import encode_shards, memory, nothing, put
from hostlib.torch.work import SwitchWork

Tensors: TypeAlias = torch.Tensor | Sequence[torch.Tensor]
"""A tensor, or a sequence with one tensor for each rank, which stands for the concatenation of these
tensors."""

SCATTERED: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)
"""Types that a reduce-scatter through the switch supports; all-gather and broadcast support all types."""
_CPU: Final = torch.device("cpu")


def why_no_move(
    calls: SwitchCalls, kind: Kind, outputs: Sequence[Tensors], inputs: Sequence[Tensors], op: Any
) -> str | None:
    """Return the reason, the same on all ranks, why a call cannot go through the switch; None if it can.

    Args:
        calls: The group's calls.
        kind: Kind of the call.
        outputs: The call's outputs.
        inputs: The input for each output.
        op: The operation of a reduce-scatter.
    """
    tensors = describe.tensors([outputs, inputs])
    operation = describe.operation(op)
    scatters = kind == "scatter"
    unknown = describe.type_names(tensor for tensor in tensors if tensor.dtype not in SCATTERED)
    reasons = (
        (calls.communicator.why_no_shards is not None, str(calls.communicator.why_no_shards)),
        (any(tensor.device != _CPU for tensor in tensors), "the switch moves tensors on the CPU only"),
        (
            any(tensor.layout is not torch.strided for tensor in tensors),
            "the switch moves dense tensors only",
        ),
        (scatters and operation not in ("sum", "avg"), f"the switch has no operation {operation}"),
        (scatters and bool(unknown), f"the switch does not add type {unknown} in a reduce-scatter"),
        (
            not _fits(kind, outputs, inputs, calls.communicator.size),
            "types or sizes of input and output tensors do not match",
        ),
    )
    return next((reason for holds, reason in reasons if holds), None)


def start_move(
    calls: SwitchCalls, outputs: Sequence[Tensors], inputs: Sequence[Tensors], what: SwitchCall
) -> SwitchWork:
    """Start a call, and return its work.

    Args:
        calls: The group's calls.
        outputs: The call's outputs.
        inputs: The input for each output.
        what: The call.

    Raises InaError if the call cannot be submitted.
    """
    work = SwitchWork(describe.tensors(outputs), what.call, calls.callbacks, len(outputs))

    def begin(pair: tuple[Tensors, Tensors]) -> Callable[[int], None]:
        return lambda number: _one(calls, *pair, what, number, work)

    return calls.carry_out(what.call, work, [*map(begin, zip(outputs, inputs, strict=True))])


def _one(
    calls: SwitchCalls, output: Tensors, inputs: Tensors, what: SwitchCall, number: int, work: SwitchWork
) -> None:
    target, finish = _target(output)
    source = target if output is inputs and finish is nothing else _source(inputs)
    handle, finish = _submit(calls, target, source, what, f"call {number}", finish)
    handle.on_done(lambda done: work.complete(calls.ended(done, finish, number)))


def _submit(
    calls: SwitchCalls,
    output: torch.Tensor,
    inputs: torch.Tensor,
    what: SwitchCall,
    label: str,
    finish: Callable[[], None],
) -> tuple[Handle[Any], Callable[[], None]]:
    """Submit a collective with the flat tensor `inputs`; return its handle, and a function for its end.

    The function stores the result in the flat tensor `output`, and calls `finish`.
    """
    communicator = calls.communicator
    if what.kind == "broadcast":
        if communicator.rank == what.root and output is not inputs:
            put(output, inputs)
        array = memory(output.view(torch.uint8))
        options = CallOptions(array, label, "propagate", inline=what.at_once)
        return communicator.start(communicator.spread(array, what.root or 0, options)), finish
    if what.kind == "gather":
        array, out = memory(inputs.view(torch.uint8)), memory(output.view(torch.uint8))
        options = CallOptions(out, label, "propagate", inline=what.at_once)
        return communicator.start(communicator.gather(array, options)), finish
    divided = what.op == "average" and not output.is_floating_point()
    rounded, op = output, "sum" if divided else what.op
    if output.dtype is torch.int64 or divided:
        array, out, decode = encode_shards(inputs, output, communicator.size, divided=divided)
    else:
        if output.dtype is torch.bfloat16:
            inputs, rounded = inputs.to(torch.float32), torch.empty(output.shape, dtype=torch.float32)
        array, out = memory(inputs), memory(rounded)
        decode = nothing if rounded is output else lambda: put(output, rounded)
    options = CallOptions(out, label, calls.nonfinite, numbers=what.numbers, inline=what.at_once)
    handle = communicator.start(communicator.scatter(array, op, options))

    def end() -> None:
        decode()
        finish()

    return handle, end


def _fits(kind: Kind, outputs: Sequence[Tensors], inputs: Sequence[Tensors], size: int) -> bool:
    """Return whether each output and its input have types and sizes that fit a call of this kind."""
    if len(outputs) != len(inputs) or not outputs:
        return False
    for pair in zip(outputs, inputs, strict=True):
        whole, shard = pair if kind != "scatter" else pair[::-1]
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
