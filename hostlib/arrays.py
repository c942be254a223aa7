"""Any array that a user may hand in, as the flat float32 or int32 memory that the core works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib.errors import UnsupportedArray

WIRE_DTYPES = {
    np.dtype(np.float32): np.dtype(np.float32),
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.float16): np.dtype(np.float32),
    np.dtype(np.int32): np.dtype(np.int32),
}
"""What each dtype is summed as. float64 is rounded to float32 first; float16 fits, its sums are rounded."""


@dataclass(frozen=True, slots=True)
class Staged:
    """An array ready for the core."""

    source: NDArray[Any]
    """Flat, contiguous, aligned, native."""
    target: NDArray[Any]
    """Like `source`, and possibly the same memory."""
    dtype: np.dtype[Any]
    """What the user's array holds."""
    finish: Callable[[], NDArray[Any]]
    """Converts `target` to what the user gets; to be called once, when it is complete."""


def stage(array: ArrayLike, out: NDArray[Any] | None = None) -> Staged:
    """Prepare `array`, to be summed into `out` (which may be `array` itself) or into a new array.

    Raises:
        UnsupportedArray: the dtype cannot be summed, or `out` does not fit `array`.
    """
    given = np.asarray(array)
    dtype = given.dtype.newbyteorder("=")
    wire_dtype = WIRE_DTYPES.get(dtype)
    if wire_dtype is None:
        names = ", ".join(str(name) for name in WIRE_DTYPES)
        raise UnsupportedArray(f"dtype is {given.dtype}, must be one of {names}")
    if out is not None:
        _check_out(given, out)
    direct_source = _is_direct(given, wire_dtype)
    source = given.reshape(-1) if direct_source else _convert(given, wire_dtype)

    if out is None:
        if not direct_source:  # already a private copy
            return Staged(
                source, source, dtype, lambda: source.astype(dtype, copy=False).reshape(given.shape)
            )
        fresh = np.empty(given.shape, wire_dtype)
        return Staged(source, fresh.reshape(-1), dtype, lambda: fresh)

    result = out
    if _is_direct(out, wire_dtype):
        target = out.reshape(-1)
        if direct_source and np.may_share_memory(source, target) and source.ctypes.data != target.ctypes.data:
            source = source.copy()
        return Staged(source, target, dtype, lambda: result)
    staging = np.empty_like(source) if direct_source else source
    return Staged(source, staging, dtype, lambda: _copy_to(result, staging))


def _check_out(given: NDArray[Any], out: NDArray[Any]) -> None:
    if not isinstance(out, np.ndarray) or not out.flags.writeable:
        raise UnsupportedArray("out must be a writable numpy array")
    if out.shape != given.shape or out.dtype != given.dtype:
        raise UnsupportedArray(f"out is {out.dtype}{out.shape}, the array is {given.dtype}{given.shape}")


def _is_direct(array: NDArray[Any], wire_dtype: np.dtype[Any]) -> bool:
    return array.dtype == wire_dtype and array.flags.c_contiguous and array.flags.aligned


def _convert(array: NDArray[Any], wire_dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite: `nonfinite` decides
        return np.array(array, wire_dtype, order="C").reshape(-1)


def _copy_to(result: NDArray[Any], staging: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        result[...] = staging.reshape(result.shape)
    return result
