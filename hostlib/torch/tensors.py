"""Tensors as arrays that the switch sums, and back.

===============================  ===================================================================
float32, float16, float64, int32  the tensor's own memory, as `hostlib.collectives.arrays` takes it
bfloat16                          a copy in float32; the sum is rounded to bfloat16
int64, averages of int32 too      digits (`hostlib.wire.wide_integers`): exact, modulo 2**64
===============================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from hostlib.wire import wide_integers

SUMMED: Final = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
)

Encoded = tuple[NDArray[Any], Callable[[], None]]
"""An array to be summed in place, and what to do then, so that the tensor holds the sum."""


def encode(tensor: torch.Tensor, size: int, *, divided: bool = False) -> Encoded:
    """Return a tensor on the CPU, of one of `SUMMED`, as what the switch sums over `size` ranks.

    `divided`: the tensor, of integers, gets the average, rounded towards zero.
    """
    plain = tensor.detach()
    if plain.dtype is torch.bfloat16:
        return _converted(plain)
    if plain.dtype is torch.int64 or divided:
        return _digits(plain, size, divisor=size if divided else 1)
    return memory(plain), _nothing


def memory(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's memory as an array. After `Tensor.numpy` no caller could resize the tensor."""
    array: NDArray[Any] = np.from_dlpack(_Exported(tensor))
    return array


class _Exported:
    """A dense tensor on the CPU, without gradient and not conjugated, as NumPy asks for its memory.

    `Tensor.__dlpack__` does the same after checks, which take longer than all the rest.
    """

    __slots__ = ("_tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **asked: Any) -> Any:
        return torch._C._to_dlpack_versioned(self._tensor)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def _converted(tensor: torch.Tensor) -> Encoded:
    copy = tensor.to(torch.float32, memory_format=torch.contiguous_format)
    return memory(copy), lambda: put(tensor, copy)


def encode_shards(
    given: torch.Tensor, output: torch.Tensor, size: int, *, divided: bool
) -> tuple[NDArray[Any], NDArray[Any], Callable[[], None]]:
    """Return the digits of integers that the switch sums for each rank, and the array for this rank's sums.

    Args:
        given: Integers of all shards, one after the other.
        output: This rank's shard of the result.
        size: Number of ranks.
        divided: `output` gets the average, rounded towards zero.

    Returns:
        The array of all shards; the array for this rank's; and what to do then, so that `output` has it.
    """
    digits = _split(given.detach(), size)
    shards = digits.reshape(len(digits), size, output.numel()).swapaxes(0, 1)
    own = np.empty((len(digits), output.numel()), np.int32)
    finish = _joining(output.detach(), own, size, divisor=size if divided else 1)
    return np.ascontiguousarray(shards).reshape(digits.size), own.reshape(own.size), finish


def _digits(tensor: torch.Tensor, size: int, *, divisor: int) -> Encoded:
    digits = _split(tensor, size)
    return digits, _joining(tensor, digits, size, divisor=divisor)


def _split(tensor: torch.Tensor, size: int) -> NDArray[np.int32]:
    values = tensor.to(torch.int64, memory_format=torch.contiguous_format)
    return wide_integers.split(memory(values).reshape(-1), size)


def _joining(tensor: torch.Tensor, digits: NDArray[Any], size: int, *, divisor: int) -> Callable[[], None]:
    """Return a call that puts the sums of digits, divided, into a tensor."""

    def finish() -> None:
        sums = torch.from_numpy(wide_integers.join(digits, size)).view(tensor.shape)
        put(tensor, sums if divisor == 1 else sums.div(divisor, rounding_mode="trunc"))

    return finish


def put(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Put values into a tensor, from any thread."""
    with torch.no_grad():  # grad mode is per thread, and this may run in the library's
        tensor.copy_(values)


def _nothing() -> None:
    """Do nothing: the sum is where it should be."""
