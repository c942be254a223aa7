r"""float32 to int32 and back, by one power of two per packet (SwitchML, NSDI'21, without its failure cases).

All ranks scale packet *j* by the same 2\ :sup:`k`, derived from the largest IEEE-754 biased exponent that any
rank has in that packet, so that the sum of n scaled values fits an int32 and its two's complement sum is
exact. Nothing can wrap; small values lose bits relative to the packet's largest (see `error_bound`).

Exponents are the biased field, 0..255: 0 means that every value is zero or subnormal, 255 that some rank has
NaN or infinity; the whole packet is then NaN. A power of two scales without rounding, so the only errors are
one rounding per rank and one of the sum. A sum beyond float32 becomes infinite, as it would in float32.

`pack` puts two, four or eight values into each int32, in fields of 16, 8 or 4 bits (block16, block8, block4)
with head room for the sum: a value keeps the bits of its field less ceil(log2 ranks). So a switch adds up
what is compressed, as in THC (NSDI'24), whose 31 levels in 8 bits are those of block8 with 8 ranks.

Another alternative is one fixed scale for everything (ATP, NSDI'21): `quantize_fixed`. It needs no exponents
in advance, and cannot take what is too large: such packets are marked, and summed unscaled elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib.wire.encodings import BLOCKS as BLOCKS
from hostlib.wire.encodings import ENCODINGS as ENCODINGS
from hostlib.wire.encodings import MAX_FAN_IN as MAX_FAN_IN
from hostlib.wire.encodings import NUMBERS as NUMBERS
from hostlib.wire.encodings import Block as Block
from hostlib.wire.encodings import Encoding as Encoding
from hostlib.wire.encodings import Numbers as Numbers
from hostlib.wire.encodings import most_ranks as most_ranks
from hostlib.wire.encodings import per_lane as per_lane
from hostlib.wire.encodings import why_no_room as why_no_room
from hostlib.wire.encodings import width

NONFINITE: Final = 255
"""Exponent of a packet in which some rank has NaN or infinity."""

_INT32_MAX: Final = 2**31 - 1


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
    parts = [sums >> (32 - bits)]
    for shift in range(32 - 2 * bits, -1, -bits):
        parts.append((sums >> shift & ((1 << bits) - 1)) - raised)
    result: NDArray[np.float32] = np.concatenate(parts, axis=-1).astype(np.float32)
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


def block_error_bound(exponent: int, fan_in: int, numbers: Block, *, average: bool = False) -> float:
    """Return the largest absolute error of a sum of packed values, against the exact sum of the inputs.

    With e = max(exponent, 1) every magnitude is below 2**(e - 126), and a unit of a field of b bits is that
    times 2**(ceil(log2 fan_in) - b + 1): one bit is the sign's and the rest is room for the sum. Each rank is
    off by half a unit; where a value is cut to `field_limit`, by less than one. The sum is exact.

    Args:
        exponent: The shared exponent of the packet.
        fan_in: Number of ranks.
        numbers: The encoding.
        average: Of the average, which is rounded once more.

    Raises ValueError if there is no room for the sum of so many ranks.
    """
    if why := why_no_room(numbers, fan_in):
        raise ValueError(why)
    unit = math.ldexp(1.0, 32 - width(per_lane(numbers)) - scale_log2(exponent, fan_in))
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


def hierarchical_error_bound(
    largest: float, ranks: int, bound: Callable[[int, int], float], most: int = MAX_FAN_IN
) -> float:
    """Return the error bound of a sum whose ranks are summed on their machines first, however they lie there.

    The switch adds up m sums of up to ranks - m + 1 ranks, whose exponent is that much larger: many machines,
    of which one has many ranks, are the worst.

    Args:
        largest: The largest magnitude among the inputs.
        ranks: Number of ranks.
        bound: `error_bound`, or `block_error_bound`, of exponent and number of machines.
        most: The most machines that the encoding has room for.
    """
    machines = range(1, min(ranks, most) + 1)
    sums = np.array([ranks - m + 1 for m in machines]) * np.float64(largest)
    with np.errstate(over="ignore"):
        rounded = np.nextafter(sums.astype(np.float32), np.float32(np.inf))
    worst = max(bound(int(exponents(rounded[m - 1 : m])), m) for m in machines)
    return worst + local_error_bound(largest, ranks)


def _log2_ceil(fan_in: int) -> int:
    if not 1 <= fan_in <= MAX_FAN_IN:
        raise ValueError(f"fan-in is {fan_in}, must be 1..{MAX_FAN_IN}")
    return (fan_in - 1).bit_length()


def _scales_log2(exponent: NDArray[np.uint8], fan_in: int) -> NDArray[Any]:
    return scale_log2(0, fan_in) + 1 - np.maximum(exponent, 1).astype(np.int32)
