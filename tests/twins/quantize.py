"""The numbers of `hostlib.wire.encodings` in numpy, as ``_native/ina_lanes.c`` makes them, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib.wire.encodings import INT32_MAX, NONFINITE, log2_ceil, scale_log2, width


def exponents(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the largest biased exponent along the last axis; 0 for zeros (or no values) alone."""
    magnitudes = np.ascontiguousarray(values).view(np.uint32) & 0x7FFFFFFF
    fields = np.where(magnitudes, np.maximum(magnitudes >> 23, 1), 0)
    largest: NDArray[np.uint8] = fields.max(axis=-1, initial=0).astype(np.uint8)
    return largest


def clamp_limit(fan_in: int) -> float:
    """Return the largest float32 of which `fan_in` fit an int32.

    Up to 128 ranks no value that its packet's exponent covers is above it, and beyond that none by a whole
    unit; it also keeps an array that somebody changes during the allreduce from wrapping a sum.
    """
    limit = np.float32(INT32_MAX // fan_in)
    if int(limit) > INT32_MAX // fan_in:
        limit = np.nextafter(limit, np.float32(0))
    return float(limit)


def quantize(values: NDArray[np.float32], exponent: NDArray[np.uint8], fan_in: int) -> NDArray[np.int32]:
    """Scale and round (half to even) packets, one per row; rows whose exponent is `NONFINITE` become 0."""
    finite = exponent != NONFINITE
    limit = np.float32(clamp_limit(fan_in))
    shift = _scales_log2(exponent, fan_in)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scaled = np.ldexp(np.where(finite[:, None], values, np.float32(0)), shift[:, None])
    # the order of the two decides what NaN becomes; it must not be converted
    scaled = np.where(scaled < limit, scaled, limit)
    scaled = np.where(scaled > -limit, scaled, -limit)
    return np.rint(scaled).astype(np.int32)


def dequantize(
    sums: NDArray[np.int32], exponent: NDArray[np.uint8], fan_in: int, *, average: bool = False
) -> NDArray[np.float32]:
    """Return the float32 sums or averages of packets, one per row.

    Args:
        sums: The sums, shape (packets, lanes).
        exponent: The shared exponent of each packet, shape (packets,); `NONFINITE` gives NaN.
        fan_in: Number of ranks.
        average: Divide by the number of ranks.
    """
    shift = -_scales_log2(exponent, fan_in)
    result: NDArray[np.float32] = sums.astype(np.float32)
    if average and fan_in & (fan_in - 1) == 0:
        shift = shift - log2_ceil(fan_in)
    elif average:
        result /= np.float32(fan_in)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(result, shift[:, None])
    result[exponent == NONFINITE] = np.nan
    return result


def quantize_fixed(
    values: NDArray[np.float32], scale_bits: int, fan_in: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Multiply packets, one per row, by 2**scale_bits and round (half to even); say of each whether it fits.

    A packet of which some value is not finite, or beyond (2**31 - 1) / fan_in when scaled, does not; it is
    zero. So whether a sum is right depends on the values only, never on the order in which they are added.
    """
    limit = np.float32(clamp_limit(fan_in))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scaled = np.rint(values * np.float32(2.0**scale_bits))
    fits: NDArray[np.bool_] = (np.abs(scaled) <= limit).all(axis=-1)  # NaN compares false
    return np.where(fits[:, None], scaled, np.float32(0)).astype(np.int32), fits


def dequantize_fixed(
    sums: NDArray[np.int32], scale_bits: int, fan_in: int, *, average: bool = False
) -> NDArray[np.float32]:
    """Return the float32 sums or averages of packets with a fixed scale.

    Args:
        sums: The sums, shape (packets, lanes).
        scale_bits: All ranks scaled by 2**scale_bits.
        fan_in: Number of ranks.
        average: Divide by the number of ranks.
    """
    shift = -scale_bits
    result: NDArray[np.float32] = sums.astype(np.float32)
    if average and fan_in & (fan_in - 1) == 0:
        shift -= log2_ceil(fan_in)
    elif average:
        result /= np.float32(fan_in)
    return result * np.float32(2.0**shift)


def field_limit(fan_in: int, fields: int) -> int:
    """Return the largest value of a field, of which `fan_in` fit it; there are `fields` of them in a lane.

    0 means that there is no room (`most_ranks`).
    """
    return int((1 << (width(fields) - 1)) - 1) // fan_in


def pack(
    values: NDArray[np.float32],
    exponent: NDArray[np.uint8],
    fan_in: int,
    fields: int,
    count: int | None = None,
) -> NDArray[np.int32]:
    """Scale and round packets of F L values to L lanes with F fields each.

    Value j L + i is field j of lane i, from the upper end. The uppermost field is signed. All others are
    raised by `field_limit`, so that no rank's is negative: `fan_in` lanes add up without a carry from one
    field to the next, in any order and grouping, and neither a sum nor a part of one exceeds int32.

    Args:
        values: The values, shape (packets, F L).
        exponent: The shared exponent of each packet, shape (packets,).
        fan_in: Number of ranks, at most `most_ranks`.
        fields: F: 2, 4 or 8, of 16, 8 or 4 bits.
        count: Number of values; fields without a value are 0. None: all.

    Returns:
        The lanes, shape (packets, L).
    """
    lanes = values.shape[-1] // fields
    rounded = _fields(values, exponent, fan_in, fields)
    rounded[:, lanes:] += field_limit(fan_in, fields)
    if count is not None:
        rounded[:, count:] = 0
    weights = np.int64(1) << (width(fields) * np.arange(fields - 1, -1, -1, dtype=np.int64))
    packed: NDArray[np.int32] = (
        (rounded.reshape(-1, fields, lanes) * weights[:, None]).sum(axis=1).astype(np.int32)
    )
    packed[exponent == NONFINITE] = 0
    return packed


def unpack(
    sums: NDArray[np.int32],
    exponent: NDArray[np.uint8],
    fan_in: int,
    fields: int,
    *,
    average: bool = False,
) -> NDArray[np.float32]:
    """Return the float32 sums or averages of packets made by `pack`.

    Args:
        sums: The sums, shape (packets, L).
        exponent: The shared exponent of each packet, shape (packets,); `NONFINITE` gives NaN.
        fan_in: Number of ranks.
        fields: As they were packed.
        average: Divide by the number of ranks.

    Returns:
        The values, shape (packets, F L).
    """
    bits = width(fields)
    raised = fan_in * field_limit(fan_in, fields)
    low = [(sums >> shift & ((1 << bits) - 1)) - raised for shift in range(32 - 2 * bits, -1, -bits)]
    result: NDArray[np.float32] = np.concatenate([sums >> (32 - bits), *low], axis=-1).astype(np.float32)
    if average:
        result /= np.float32(fan_in)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(result, -_field_scales_log2(exponent, fan_in, fields)[:, None])
    result[exponent == NONFINITE] = np.nan
    return result


def rest(
    values: NDArray[np.float32], exponent: NDArray[np.uint8], fan_in: int, fields: int
) -> NDArray[np.float32]:
    """Return the rounding errors of `pack`, value minus result; 0 where the exponent is `NONFINITE`.

    Args:
        values: The values, shape (packets, F L).
        exponent: The shared exponent of each packet, shape (packets,).
        fan_in: Number of ranks.
        fields: As they are packed.
    """
    halved = (exponent == NONFINITE - 1)[:, None]  # what is rounded up may be beyond float32; the rest is not
    scale = -_field_scales_log2(exponent, fan_in, fields)[:, None] - halved
    sent = np.ldexp(_fields(values, exponent, fan_in, fields).astype(np.float32), scale)
    with np.errstate(invalid="ignore"):
        left: NDArray[np.float32] = np.ldexp(np.ldexp(values, -1 * halved) - sent, 1 * halved)
    left[exponent == NONFINITE] = 0
    return left


def _fields(
    values: NDArray[np.float32], exponent: NDArray[np.uint8], fan_in: int, fields: int
) -> NDArray[np.int64]:
    limit = np.float32(field_limit(fan_in, fields))
    finite = np.where((exponent != NONFINITE)[:, None], values, np.float32(0))
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(finite, _field_scales_log2(exponent, fan_in, fields)[:, None])
    rounded: NDArray[np.int64] = np.rint(np.clip(scaled, -limit, limit)).astype(np.int64)
    return rounded


def _field_scales_log2(exponent: NDArray[np.uint8], fan_in: int, fields: int) -> NDArray[Any]:
    return _scales_log2(exponent, fan_in) - (32 - width(fields))


def _scales_log2(exponent: NDArray[np.uint8], fan_in: int) -> NDArray[Any]:
    return scale_log2(0, fan_in) + 1 - np.maximum(exponent, 1).astype(np.int32)
