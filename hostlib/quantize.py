r"""float32 to int32 and back, by one power of two per packet (SwitchML, NSDI'21, without its failure cases).

All ranks scale packet *j* by the same 2\ :sup:`k`, derived from the largest IEEE-754 biased exponent that any
rank has in that packet, so that the sum of n scaled values fits an int32 and its two's complement sum is
exact. Nothing can wrap; small values lose bits relative to the packet's largest (see `error_bound`).

Exponents are the biased field, 0..255: 0 means that every value is zero or subnormal, 255 that some rank has
NaN or infinity; the whole packet is then NaN. A power of two scales without rounding, so the only errors are
one rounding per rank and one of the sum. A sum beyond float32 becomes infinite, as it would in float32.

`pack` puts two values into each int32, at the price of 16 bits less for each (block16).

Another alternative is one fixed scale for everything (ATP, NSDI'21): `quantize_fixed`. It needs no exponents
in advance, and cannot take what is too large: such packets are marked, and summed unscaled elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Encoding = Literal["exponent", "block16", "fixed"]
"""How a job's float32 travel: one exponent a packet, the same in 16 bits, or one fixed scale."""
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)

NONFINITE: Final = 255
"""Exponent of a packet in which some rank has NaN or infinity."""

MAX_FAN_IN: Final = 1024
"""Ranks for which the scale leaves at least 21 bits to a value."""

_INT32_MAX: Final = 2**31 - 1
_INT16_MAX: Final = 2**15 - 1


def exponents(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the largest biased exponent along the last axis; 0 for no values."""
    fields = (np.ascontiguousarray(values).view(np.uint32) >> 23) & 0xFF
    largest: NDArray[np.uint8] = fields.max(axis=-1, initial=0).astype(np.uint8)
    return largest


def scale_log2(exponent: int, fan_in: int) -> int:
    """Return k: values of a packet with that exponent are multiplied by 2**k.

    With e = max(exponent, 1) every magnitude is below 2**(e - 126), so that n of them times 2**k reach 2**31
    at most.
    """
    return 31 - _log2_ceil(fan_in) - (max(exponent, 1) - 126)


def clamp_limit(fan_in: int) -> float:
    """Return the largest float32 of which `fan_in` fit an int32.

    Up to 128 ranks no value that its packet's exponent covers is above it, and beyond that none by a whole
    unit; it also keeps an array that somebody changes during the allreduce from wrapping a sum.
    """
    limit = np.float32(_INT32_MAX // fan_in)
    if int(limit) > _INT32_MAX // fan_in:
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
        shift = shift - _log2_ceil(fan_in)
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
        shift -= _log2_ceil(fan_in)
    elif average:
        result /= np.float32(fan_in)
    return result * np.float32(2.0**shift)


def half_limit(fan_in: int) -> int:
    """Return the largest value of a half, of which `fan_in` fit 16 bits."""
    return _INT16_MAX // fan_in


def pack(
    values: NDArray[np.float32], exponent: NDArray[np.uint8], fan_in: int, count: int | None = None
) -> NDArray[np.int32]:
    """Scale and round packets of 2 L values to L lanes with two of 16 bits each (block16).

    Value i is the upper half of lane i, value L + i the lower one. The lower one is raised by `half_limit`,
    so that no rank's is negative: halves of `fan_in` lanes add up without a carry from the lower to the
    upper, and no sum exceeds int32.

    Args:
        values: The values, shape (packets, 2 L).
        exponent: The shared exponent of each packet, shape (packets,).
        fan_in: Number of ranks.
        count: Number of values; lanes without a lower value have 0 there. None: all.

    Returns:
        The lanes, shape (packets, L).
    """
    lanes = values.shape[-1] // 2
    lowers = max(0, (values.shape[-1] if count is None else count) - lanes)
    halves = _halves(values, exponent, fan_in)
    lower = halves[:, lanes:] + half_limit(fan_in)
    lower[:, lowers:] = 0
    packed: NDArray[np.int32] = (halves[:, :lanes] * 65536 + lower).astype(np.int32)
    packed[exponent == NONFINITE] = 0
    return packed


def unpack(
    sums: NDArray[np.int32], exponent: NDArray[np.uint8], fan_in: int, *, average: bool = False
) -> NDArray[np.float32]:
    """Return the float32 sums or averages of packets made by `pack`.

    Args:
        sums: The sums, shape (packets, L).
        exponent: The shared exponent of each packet, shape (packets,); `NONFINITE` gives NaN.
        fan_in: Number of ranks.
        average: Divide by the number of ranks.
    """
    lower = (sums & 0xFFFF) - fan_in * half_limit(fan_in)
    result: NDArray[np.float32] = np.concatenate([sums >> 16, lower], axis=-1).astype(np.float32)
    if average:
        result /= np.float32(fan_in)
    shift = 16 - _scales_log2(exponent, fan_in)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(result, shift[:, None])
    result[exponent == NONFINITE] = np.nan
    return result


def rest(values: NDArray[np.float32], exponent: NDArray[np.uint8], fan_in: int) -> NDArray[np.float32]:
    """Return the rounding errors of `pack`, value minus result; 0 where the exponent is `NONFINITE`."""
    sent = np.ldexp(
        _halves(values, exponent, fan_in).astype(np.float32), 16 - _scales_log2(exponent, fan_in)[:, None]
    )
    left: NDArray[np.float32] = np.where((exponent == NONFINITE)[:, None], np.float32(0), values - sent)
    return left


def _halves(values: NDArray[np.float32], exponent: NDArray[np.uint8], fan_in: int) -> NDArray[np.int32]:
    limit = np.float32(half_limit(fan_in))
    finite = np.where((exponent != NONFINITE)[:, None], values, np.float32(0))
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(finite, _scales_log2(exponent, fan_in)[:, None] - 16)
    halves: NDArray[np.int32] = np.rint(np.clip(scaled, -limit, limit)).astype(np.int32)
    return halves


def block16_error_bound(exponent: int, fan_in: int, *, average: bool = False) -> float:
    """Return the largest absolute error of a sum of packed values, against the exact sum of the inputs.

    With e = max(exponent, 1) every magnitude is below 2**(e - 126), and a half's unit is that times
    2**(ceil(log2 fan_in) - 15): of 16 bits, one is the sign's and the rest is room for the sum. Each rank is
    off by half a unit; where a value is cut to `half_limit`, by less than one. The sum is exact.
    """
    unit = math.ldexp(1.0, 16 - scale_log2(exponent, fan_in))
    bound = fan_in * unit
    if average:
        largest = math.ldexp(1.0, max(exponent, 1) - 126)
        bound = bound / fan_in + math.ldexp(largest, -24)
    return bound + math.ldexp(1.0, -149)


def fixed_error_bound(largest: float, scale_bits: int, fan_in: int) -> float:
    """Return the largest absolute error of a sum with fixed scale.

    `largest` is the largest magnitude among the inputs. Each rank rounds to a multiple of 2**-scale_bits, and
    the sum is rounded to float32.
    """
    rounding = fan_in * math.ldexp(0.5, -scale_bits)
    return rounding + math.ldexp(fan_in * largest + rounding, -24)


def error_bound(exponent: int, fan_in: int, *, average: bool = False) -> float:
    """Return the largest absolute error of a result, against the exact sum of the float32 inputs.

    Each rank rounds to a multiple of 2**-k (half of it off at most, or with more than 128 ranks, where the
    clamp may be met, all of it), and the sum, below fan_in * 2**(e - 126), is rounded to float32 twice at
    most (to 24 bits, and again if it is subnormal). Where the exact sum is beyond the float32 range the
    result may be infinite.
    """
    largest = fan_in * math.ldexp(1.0, max(exponent, 1) - 126)
    rounding = fan_in * math.ldexp(0.5 if fan_in <= 128 else 1.0, -scale_log2(exponent, fan_in))
    bound = rounding + math.ldexp(largest + rounding, -24)
    if average:
        bound = bound / fan_in + math.ldexp(largest / fan_in, -24)
    return bound + math.ldexp(1.0, -150)


def local_error_bound(largest: float, ranks: int) -> float:
    """Return the largest absolute error of the machines' own sums, where ranks are summed there first.

    Each is rounded to float32 once: by 2**-24 of it, and together they are below ranks * largest.
    """
    return math.ldexp(ranks * largest, -24)


def hierarchical_error_bound(largest: float, ranks: int, bound: Callable[[int, int], float]) -> float:
    """Return the error bound of a sum whose ranks are summed on their machines first, however they lie there.

    `bound` is `error_bound` or `block16_error_bound`. The switch adds up m sums of up to ranks - m + 1 ranks,
    whose exponent is that much larger: many machines, of which one has many ranks, are the worst.
    """
    sums = np.array([ranks - m + 1 for m in range(1, ranks + 1)]) * np.float64(largest)
    with np.errstate(over="ignore"):
        rounded = np.nextafter(sums.astype(np.float32), np.float32(np.inf))
    worst = max(bound(int(exponents(rounded[m - 1 : m])), m) for m in range(1, ranks + 1))
    return worst + local_error_bound(largest, ranks)


def _log2_ceil(fan_in: int) -> int:
    if not 1 <= fan_in <= MAX_FAN_IN:
        raise ValueError(f"fan-in is {fan_in}, must be 1..{MAX_FAN_IN}")
    return (fan_in - 1).bit_length()


def _scales_log2(exponent: NDArray[np.uint8], fan_in: int) -> NDArray[Any]:
    return scale_log2(0, fan_in) + 1 - np.maximum(exponent, 1).astype(np.int32)
