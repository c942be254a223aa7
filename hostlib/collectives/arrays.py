"""Convert users' arrays to the flat float32 or int32 memory that the core reads and writes, and back.

Users may pass whatever NumPy can read: lists, numbers, subclasses of arrays, and tensors of other libraries
whose memory NumPy can reach (torch's on the CPU) through ``__array__`` and ``__dlpack__``. No such library is
imported here.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib.errors import PrecisionWarning, UnsupportedArray, refuse

WIRE_DTYPES: Final = {
    np.dtype(np.float32): np.dtype(np.float32),
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.float16): np.dtype(np.float32),
    np.dtype(np.int32): np.dtype(np.int32),
}
"""Type in which arrays of each dtype are summed. float64 is rounded to float32 before the sum; sums of
float16 are rounded to float16 after it."""

_INT32: Final = np.iinfo(np.int32)
_WORD: Final = 4
"""Bytes of a lane."""


class Tensor(Protocol):
    """An array of another library whose memory NumPy can reach."""

    def __array__(self) -> NDArray[Any]: ...

    def __dlpack__(self) -> Any: ...


Output = NDArray[Any] | Tensor
"""Array that a sum can be written to."""


class Staged(NamedTuple):
    """An array ready for the core; a tuple, because a frozen dataclass takes a microsecond longer to make."""

    source: NDArray[Any]
    """Array to read: flat, contiguous, aligned, in native byte order."""
    target: NDArray[Any]
    """Array to write the result to: flat, contiguous, aligned; may share the memory of `source`."""
    dtype: np.dtype[Any]
    """Dtype of the user's array."""
    shape: tuple[int, ...]
    beyond: tuple[int, float] | None
    """Index and float64 value of the first number beyond float32's range, for which `source` holds infinity;
    None: there is none."""
    finish: Callable[[], Any]
    """Converts the complete `target` to the user's result; call it once."""

    def unfit(self, first: int, count: int) -> str:
        """Describe the values that are not finite among `count` elements of a source from `first` on."""
        if self.dtype != np.float64:
            return "NaN or infinity"
        limit = "beyond the range of float32 (3.4e+38), in which float64 is summed,"
        if self.beyond and first <= self.beyond[0] < first + count:
            return f"{self.beyond[1]:g} (element {self.beyond[0]}), {limit}"
        return f"NaN, infinity or a number {limit}"


def nothing() -> None:
    """Return None, where nothing is to convert, or the result is for another rank."""


def staged_as(source: NDArray[Any], target: NDArray[Any]) -> Staged:
    """Return arrays that need no conversion as `Staged`."""
    return Staged(source, target, source.dtype, source.shape, None, nothing)


def stage(array: ArrayLike | Tensor, out: Output | None = None) -> Staged:
    """Prepare `array` for a sum into `out` (which may be `array` itself) or into a new array.

    `finish` returns `out`, or a new array: a tensor if `array` is one, a plain NumPy array otherwise.

    Raises:
        UnsupportedArray: `array` cannot be summed, or `out` does not fit it.
    """
    given = _read(array, "the array")
    dtype = given.dtype.newbyteorder("=")
    wire_dtype = WIRE_DTYPES.get(dtype)
    if wire_dtype is None:
        names = ", ".join(str(name) for name in WIRE_DTYPES)
        raise UnsupportedArray(f"dtype is {given.dtype}, must be one of {names}{_advice(given)}")
    memory = None if out is None else _writable(out, given.shape, given.dtype)
    if dtype == np.float64:
        warn_of_float64()
    is_direct = _is_direct(given, wire_dtype)
    source, beyond = (given.reshape(-1), None) if is_direct else _convert(given, wire_dtype)

    def staged(target: NDArray[Any], finish: Callable[[], Any]) -> Staged:
        return Staged(source, target, dtype, given.shape, beyond, finish)

    if memory is None:
        # a converted array is a private copy already
        target = np.empty(given.size, wire_dtype) if is_direct else source
        return staged(target, lambda: _like(array, _cast(target, dtype).reshape(given.shape)))
    if _is_direct(memory, wire_dtype):
        target = source if memory is given else memory.reshape(-1)
        source = _unchanged(source, target)
        return staged(target, lambda: out)
    staging = np.empty_like(source) if is_direct else source
    return staged(staging, lambda: _copy_to(out, memory, staging))


def _unchanged(source: NDArray[Any], target: NDArray[Any], offset: int = 0) -> NDArray[Any]:
    """Return `source`, or a copy of it if writing `target` could change its values before they are read.

    It does not if `target` begins `offset` bytes after `source`: each value is read before its place is
    written.
    """
    shared = target is not source and np.may_share_memory(source, target)
    return source.copy() if shared and target.ctypes.data - source.ctypes.data != offset else source


def stage_shard(array: ArrayLike | Tensor, whole: Staged, out: Output | None, rank: int, size: int) -> Staged:
    """Prepare a reduce-scatter of `array`: return `whole` with this rank's shard of the sum as its target.

    `finish` returns the shard: `out`, or a new array.

    Args:
        array: The array whose first dimension is split into shards.
        whole: Result of `stage` for `array`.
        out: Where to put the shard; it may be this rank's part of `array`. None: a new array.
        rank: This rank.
        size: Number of ranks.

    Raises:
        UnsupportedArray: there are no `size` equal shards, or `out` does not fit one.
    """
    if not whole.shape or whole.shape[0] % size:
        raise UnsupportedArray(
            f"the array's shape is {whole.shape}, its first dimension must be a multiple of {size}: a shard"
            " for each rank"
        )
    shape = (whole.shape[0] // size, *whole.shape[1:])
    length = len(whole.source) // size
    if out is None:
        target = np.empty(length, whole.source.dtype)
        return whole._replace(
            target=target, finish=lambda: _like(array, _cast(target, whole.dtype).reshape(shape))
        )
    memory = _writable(out, shape, whole.dtype, what="a shard")
    if _is_direct(memory, whole.source.dtype):
        target = memory.reshape(-1)
        source = _unchanged(whole.source, target, rank * target.nbytes)
        return whole._replace(source=source, target=target, finish=lambda: out)
    target = np.empty(length, whole.source.dtype)
    return whole._replace(target=target, finish=lambda: _copy_to(out, memory, target))


def stage_shards(array: ArrayLike | Tensor, out: Output | None, rank: int, size: int) -> Staged:
    """Prepare this rank's shard, whose bytes move unchanged to all other ranks, and room for all shards.

    Source and target are words of 32 bits; a shard is padded to whole words. `finish` returns all shards,
    one behind the other in the first dimension: `out`, or a new array.

    Args:
        array: This rank's shard, of any type of a fixed size.
        out: Where to put all shards; `array` may be this rank's part of it. None: a new array.
        rank: This rank.
        size: Number of ranks.

    Raises:
        UnsupportedArray: `array` cannot be moved, or `out` does not fit.
    """
    given = _movable(array)
    shape = (size * given.shape[0], *given.shape[1:]) if given.shape else (size,)
    memory = (
        np.empty(shape, given.dtype) if out is None else _writable(out, shape, given.dtype, what="all shards")
    )
    source = _words(given)
    whole_words = given.nbytes % _WORD == 0 and memory.flags.c_contiguous
    target = _words(memory) if whole_words else np.empty(size * len(source), np.int32)
    mine = target[rank * len(source) : (rank + 1) * len(source)]
    source = _unchanged(source, target, -rank * source.nbytes)

    def finish() -> Any:
        if mine.ctypes.data != source.ctypes.data:
            mine[:] = source
        if not whole_words:
            rows = target.view(np.uint8).reshape(size, -1)[:, : given.nbytes]
            memory[...] = np.ascontiguousarray(rows).view(given.dtype).reshape(memory.shape)
        return _like(array, memory) if out is None else out

    return Staged(source, target, given.dtype, given.shape, None, finish)


def stage_moved(array: ArrayLike | Tensor, out: Output | None, *, sends: bool) -> Staged:
    """Prepare an array whose bytes move unchanged from one rank (where `sends` is True) to all others.

    Source and target are one array, of words of 32 bits. `finish` returns `out`, or a new array.

    Raises:
        UnsupportedArray: `array` cannot be moved, or `out` does not fit it.
    """
    given = _movable(array)
    memory = np.empty(given.shape, given.dtype) if out is None else _writable(out, given.shape, given.dtype)
    whole_words = given.nbytes % _WORD == 0 and memory.flags.c_contiguous
    if sends and memory is not given:
        memory[...] = given
    words = _words(memory) if whole_words else _words(np.array(memory, order="C"))

    def finish() -> Any:
        if not whole_words:
            memory[...] = words.view(np.uint8)[: given.nbytes].view(given.dtype).reshape(given.shape)
        return _like(array, memory) if out is None else out

    return Staged(words, words, given.dtype, given.shape, None, finish)


def _movable(array: object) -> NDArray[Any]:
    given = _read(array, "the array")
    if given.dtype.hasobject:
        raise UnsupportedArray(f"dtype is {given.dtype}, must not hold Python objects: only bytes are sent")
    return given


def _words(array: NDArray[Any]) -> NDArray[np.int32]:
    """Return the bytes of an array as words: a view if possible, else a copy."""
    if array.flags.c_contiguous and array.nbytes % _WORD == 0:
        return array.reshape(-1).view(np.uint8).view(np.int32) if array.size else np.empty(0, np.int32)
    words = np.zeros(-(-array.nbytes // _WORD), np.int32)
    words.view(np.uint8)[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return words


def with_residual(staged: Staged, residual: Any) -> Staged:
    """Add the array to `residual`, and return `staged` with `residual` as its source.

    The collective then writes its rounding error to `residual`.

    Raises:
        UnsupportedArray: `residual` does not fit the array, or shares memory with the source or the target.
    """
    is_array, shape = isinstance(residual, np.ndarray), staged.shape
    refuse(
        staged.source.dtype != np.float32,
        f"residual is given, which is only for arrays of floats; the array is {staged.dtype}",
        UnsupportedArray,
    )
    refuse(
        not is_array or residual.dtype != np.float32 or residual.shape != shape,
        f"residual must be a NumPy array of float32 of the array's shape, {shape}",
        UnsupportedArray,
    )
    refuse(
        is_array and not (_is_direct(residual, residual.dtype) and residual.flags.writeable),
        "residual must be contiguous and writable",
        UnsupportedArray,
    )
    rest: NDArray[Any] = residual.reshape(-1)
    if np.may_share_memory(rest, staged.source) or np.may_share_memory(rest, staged.target):
        raise UnsupportedArray("residual shares memory with the array: it must have its own")
    rest += staged.source
    return staged._replace(source=rest)


def _read(value: object, what: str) -> NDArray[Any]:
    if type(value) is np.ndarray:
        return value
    items = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(item, np.ma.MaskedArray) for item in items):
        raise UnsupportedArray(
            f"{what} is masked, but a sum includes masked elements: pass array.filled(0), for example"
        )
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        advice = (
            "; pass tensor.detach().cpu(), of a type that NumPy has" if hasattr(value, "__dlpack__") else ""
        )
        raise UnsupportedArray(
            f"{what} is a {_type_name(value)} that NumPy cannot read: {str(error).rstrip('.')}{advice}"
        ) from error


def _writable(
    out: object, shape: tuple[int, ...], dtype: np.dtype[Any], what: str = "the array"
) -> NDArray[Any]:
    """Return `out` as an array over the same memory. Raises UnsupportedArray for another shape or type."""
    memory = _read(out, "out")
    if not isinstance(out, np.ndarray) and not _shares_memory(out, memory):
        raise UnsupportedArray(
            f"out is a {_type_name(out)}, must be a NumPy array, or a tensor in the memory of the CPU"
        )
    if not memory.flags.writeable:
        raise UnsupportedArray("out is read-only, must be writable")
    if memory.shape != shape or memory.dtype != dtype:
        raise UnsupportedArray(f"out is {memory.dtype}{memory.shape}, must be like {what}: {dtype}{shape}")
    if _overlaps_itself(memory):
        raise UnsupportedArray(
            f"elements of out share memory: shape {memory.shape}, strides {memory.strides}; pass a copy"
        )
    return memory


def _shares_memory(tensor: object, array: NDArray[Any]) -> bool:
    """Return whether `array`, made by NumPy from `tensor`, uses the tensor's memory; DLPack never copies."""
    if not hasattr(tensor, "__dlpack__"):
        return False
    try:
        return bool(np.from_dlpack(tensor).ctypes.data == array.ctypes.data)
    except (TypeError, ValueError, RuntimeError, BufferError):
        return False


def _overlaps_itself(array: NDArray[Any]) -> bool:
    if array.flags.c_contiguous:
        return False
    reach = array.itemsize
    for stride, length in sorted(
        (abs(stride), n) for stride, n in zip(array.strides, array.shape, strict=True)
    ):
        if length > 1 and stride < reach:
            return array.size > 0
        reach += stride * max(0, length - 1)
    return False


def _is_direct(array: NDArray[Any], wire_dtype: np.dtype[Any]) -> bool:
    return array.dtype == wire_dtype and array.flags.c_contiguous and array.flags.aligned


def _convert(array: NDArray[Any], wire_dtype: np.dtype[Any]) -> tuple[NDArray[Any], tuple[int, float] | None]:
    """Return a flat copy as `wire_dtype`, and (index, value) of the first number that is too large.

    Instead of (index, value), return None if no number is too large.
    """
    try:
        with np.errstate(over="raise"):
            return np.array(array, wire_dtype, order="C").reshape(-1), None
    except FloatingPointError:  # the option `nonfinite` decides whether all ranks raise
        with np.errstate(over="ignore"):
            converted = np.array(array, wire_dtype, order="C").reshape(-1)
    first = int(np.argmax(np.isinf(converted) & np.isfinite(array).reshape(-1)))
    return converted, (first, float(array.reshape(-1)[first]))


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # a sum beyond float16 is infinite, as in any float16 addition
        return array.astype(dtype, copy=False)


def _copy_to(out: object, memory: NDArray[Any], staging: NDArray[Any]) -> object:
    with np.errstate(over="ignore"):
        memory[...] = staging.reshape(memory.shape)
    return out


def _like(array: object, result: NDArray[Any]) -> Any:
    """Return `result` as a tensor of the library of `array`, if `array` offers a conversion."""
    if isinstance(array, np.ndarray | np.generic) or not hasattr(array, "__dlpack__"):
        return result
    wrap = getattr(array, "__array_wrap__", None)  # NumPy's own functions use it, too
    return result if wrap is None else wrap(result)


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _advice(array: NDArray[Any]) -> str:
    """Return advice, for an error message, on an array whose dtype cannot be summed."""
    match array.dtype.kind:
        case "i" | "u" if array.size:
            low, high = int(array.min()), int(array.max())
            if _INT32.min <= low and high <= _INT32.max:
                return f"; values {low}..{high} fit array.astype(numpy.int32)"
            return f"; values {low}..{high} do not fit int32, array.astype(numpy.float32) rounds them"
        case "b":
            return "; sum array.astype(numpy.int32) to count the true elements"
        case "f":
            return "; array.astype(numpy.float32) rounds"
        case "c":
            return "; sum array.real and array.imag"
        case "O" if array.size:
            return f"; its elements are of type {_type_name(array.flat[0])}"
        case "V" if array.dtype.names:
            return f"; sum its fields, array[{array.dtype.names[0]!r}] and so on"
        case _:
            return ""


_warned = False


def warn_of_float64() -> None:
    """Warn once that float64 is summed as float32, at the line that called this package."""
    global _warned
    if _warned:
        return
    warnings.warn(
        "float64 (Python's float, too) is summed as float32, which keeps 24 of 53 bits. Pass "
        "array.astype(numpy.float32) where that is intended, or silence this one-time warning with "
        'warnings.filterwarnings("ignore", category=hostlib.PrecisionWarning)',
        PrecisionWarning,
        stacklevel=_callers_level(),
    )
    _warned = True


def _callers_level() -> int:
    """Return the `stacklevel` with which a warning names the caller of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "hostlib":
        level, frame = level + 1, frame.f_back
    return level
