"""Convert tensors to arrays that the switch can sum, and back.

===============================  ===================================================================
float32, float16, float64, int32  the tensor's own memory (see `hostlib.collectives.arrays`)
bfloat16, negated views           a copy in float32; the sum is rounded to the type
int64, averages of int32 too      narrow digits, summed exactly: modulo 2**64
===============================  ===================================================================

A number is cut into digits that are narrow enough for a sum over all ranks to stay below 2**31. The host adds
the sums of digits with their carries, modulo 2**64: the sum is exact if it fits 64 bits, and otherwise wraps
around, like any addition of 64-bit integers.

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

from hostlib.collectives.arrays import nothing

SUMMED: Final = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
)

Encoded = tuple[NDArray[Any], Callable[[], None]]
"""An array to sum in place, and a function that then stores the sum in the tensor."""


def encode(tensor: torch.Tensor, size: int, *, divided: bool = False) -> Encoded:
    """Return an array to sum over `size` ranks for a CPU tensor of a type in `SUMMED`.

    With `divided`, the tensor has integers, and gets their average, rounded towards zero, instead of the sum.
    """
    plain = tensor.detach()
    if plain.dtype is torch.bfloat16 or plain.is_neg():
        return _converted(plain)
    if plain.dtype is torch.int64 or divided:
        return _digits(plain, size, divisor=size if divided else 1)
    return memory(plain), nothing


def memory(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's memory as an array.

    The array is made by DLPack, because a tensor cannot be resized any more after `Tensor.numpy`.
    """
    array: NDArray[Any] = np.from_dlpack(_Exported(tensor))
    return array


class _Exported:
    """Gives NumPy the memory of a dense CPU tensor, without gradient and not conjugated.

    `Tensor.__dlpack__` does the same after checks that take longer than the conversion.
    """

    __slots__ = ("_tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **asked: Any) -> Any:
        return torch._C._to_dlpack_versioned(self._tensor)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def _converted(tensor: torch.Tensor) -> Encoded:
    copy = tensor.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
    return memory(copy), lambda: put(tensor, copy)


def encode_shards(
    given: torch.Tensor, output: torch.Tensor, size: int, *, divided: bool
) -> tuple[NDArray[Any], NDArray[Any], Callable[[], None]]:
    """Return the digits of integers to sum for each rank, and the array for this rank's sums.

    Args:
        given: Integers of all shards, one after the other.
        output: This rank's shard of the result.
        size: Number of ranks.
        divided: Whether `output` gets the average, rounded towards zero, instead of the sum.

    Returns:
        The array of all shards' digits; the array for the sums of this rank's digits; and a function that
        stores the result of these sums in `output`.
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
    """Return a function that joins the sums in `digits`, divides by `divisor`, and fills `tensor`."""

    def finish() -> None:
        sums = torch.from_numpy(join(digits, size)).view(tensor.shape)
        put(tensor, sums if divisor == 1 else sums.div(divisor, rounding_mode="trunc"))

    return finish


def put(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values to a tensor, from any thread."""
    with torch.no_grad():  # grad mode is per thread, and this may run in the library's
        tensor.copy_(values)


MAX_SIZE = 1 << 20
"""Maximum number of ranks; with more ranks, digits would have few bits."""


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
    """Return the sums (n,) of the values, from the sums (digits, n) of their digits by `split`."""
    bits = digit_bits(size)
    total = np.zeros(sums.shape[1:], np.uint64)
    for digit, shift in zip(sums, range(0, 64, bits), strict=True):
        total += digit.astype(np.uint64) << np.uint64(shift)  # modulo 2**64, as intended
    return total.view(np.int64)
