"""Tensors as arrays that the switch sums, and back.

===============================  ===================================================================
float32, float16, float64, int32  the tensor's own memory, as `hostlib.collectives.arrays` takes it
bfloat16                          a copy in float32; the sum is rounded to bfloat16
int64, averages of int32 too      narrow digits, summed exactly: modulo 2**64
===============================  ===================================================================

A number is cut into digits of so many bits that the sum of as many of them as there are ranks stays below
2**31. Sums of digits are carried into one another on the host, modulo 2**64: the sum is exact where it fits
64 bits, and wraps around as additions of 64-bit integers do elsewhere.

>>> sums = sum(split(np.array(values), 2) for values in ([2**40, -1], [5, -1]))
>>> join(sums, 2).tolist()
[1099511627781, -2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

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
    return split(memory(values).reshape(-1), size)


def _joining(tensor: torch.Tensor, digits: NDArray[Any], size: int, *, divisor: int) -> Callable[[], None]:
    """Return a call that puts the sums of digits, divided, into a tensor."""

    def finish() -> None:
        sums = torch.from_numpy(join(digits, size)).view(tensor.shape)
        put(tensor, sums if divisor == 1 else sums.div(divisor, rounding_mode="trunc"))

    return finish


def put(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Put values into a tensor, from any thread."""
    with torch.no_grad():  # grad mode is per thread, and this may run in the library's
        tensor.copy_(values)


def _nothing() -> None:
    """Do nothing: the sum is where it should be."""


MAX_SIZE = 1 << 20
"""Ranks; digits of more would be few bits."""


def digit_bits(size: int) -> int:
    """Return the number of bits of a digit in a sum over `size` ranks. Raises ValueError above `MAX_SIZE`."""
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"size is {size}, must be 1..{MAX_SIZE}")
    return 31 - (size - 1).bit_length()


def split(values: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Return the digits of flat `values` (n,), lowest first, as (digits, n)."""
    bits = digit_bits(size)
    raw = np.ascontiguousarray(values).view(np.uint64)
    mask = np.uint64((1 << bits) - 1)
    digits = [(raw >> np.uint64(shift)) & mask for shift in range(0, 64, bits)]
    return np.stack(digits).astype(np.int32)


def join(sums: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Return the sums (n,) of what `split` made on every rank, given the sums of the digits (digits, n)."""
    bits = digit_bits(size)
    total = np.zeros(sums.shape[1:], np.uint64)
    for digit, shift in zip(sums, range(0, 64, bits), strict=True):
        total += digit.astype(np.uint64) << np.uint64(shift)  # what leaves 64 bits is meant to
    return total.view(np.int64)
