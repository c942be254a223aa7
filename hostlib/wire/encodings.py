r"""Encodings of float32 as int32 in packets: names, largest numbers of ranks, and error bounds.

All ranks scale packet *j* by the same 2\ :sup:`k`, derived from the largest IEEE-754 biased exponent that any
rank has in that packet, so that the sum of n scaled values fits an int32 and its two's complement sum is
exact. Nothing can wrap; small values lose bits relative to the packet's largest (see `error_bound`).

Exponents are the biased field, 0..255: 0 means that every value is zero or subnormal, 255 that some rank has
NaN or infinity; the whole packet is then NaN. A power of two scales without rounding, so the only errors are
one rounding per rank and one rounding of the sum. A sum beyond float32 becomes infinite, as it would in
float32.

Blocks put two, four or eight values into each int32, in fields of 16, 8 or 4 bits (block16, block8, block4)
with head room for the sum: a value has the bits of its field minus ceil(log2 ranks). So a switch can add
compressed values, as in THC (NSDI'24), whose 31 levels in 8 bits equal block8 with 8 ranks.

Another alternative is one fixed scale for all packets (ATP, NSDI'21). It needs no exponents in advance, but
has no room for large values: their packets are marked, and summed unscaled by the fallback server.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

Encoding = Literal["exponent", "block16", "block8", "block4", "fixed"]
"""Encoding of a job's float32: an exponent per packet, with 32, 16, 8 or 4 bits, or one fixed scale."""
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)

Numbers = Literal["exponent", "block16", "block8", "block4"]
"""Encodings that a collective may choose; the fixed scale can only be chosen for a whole job."""
NUMBERS: Final[tuple[Numbers, ...]] = get_args(Numbers)
Block = Literal["block16", "block8", "block4"]
BLOCKS: Final[tuple[Block, ...]] = get_args(Block)
_PER_LANE: Final[Mapping[str, int]] = {"block16": 2, "block8": 4, "block4": 8}

MAX_FAN_IN: Final = 1024
"""Maximum number of ranks: the scale leaves at least 21 bits for a value."""

NONFINITE: Final = 255
"""Exponent of a packet in which a rank has NaN or infinity."""

SPARE: Final = 3
"""Maximum number of bits by which a foreseen exponent may exceed the real one (`hostlib.core.foresight`)."""

INT32_MAX: Final = 2**31 - 1
_INFINITY: Final = 0x7F800000
"""The bits of float32's infinity, as an integer."""


def per_lane(numbers: Encoding) -> int:
    """Return the number of values in each lane: 1, or 2, 4 or 8 fields of 16, 8 or 4 bits."""
    return _PER_LANE.get(numbers, 1)


def most_ranks(numbers: Encoding) -> int:
    """Return the largest number of ranks for an encoding: 127 for block8, 7 for block4."""
    return min(MAX_FAN_IN, INT32_MAX >> (32 - width(per_lane(numbers))))


def why_no_room(numbers: Encoding, fan_in: int) -> str | None:
    """Return the reason why a sum of `fan_in` ranks does not fit an encoding; None if it fits."""
    if fan_in <= (most := most_ranks(numbers)):
        return None
    return f"{numbers} has room for the sum of at most {most} ranks, and there are {fan_in}"


def width(fields: int) -> int:
    """Return the number of bits of each field if a lane has `fields` fields."""
    return 32 // fields


def scale_log2(exponent: int, fan_in: int) -> int:
    """Return the k for which values of a packet with this exponent are multiplied by 2**k.

    With e = max(exponent, 1) every magnitude is below 2**(e - 126), so that `fan_in` of them, times 2**k,
    add up to 2**31 at most.
    """
    return 31 - log2_ceil(fan_in) - (max(exponent, 1) - 126)


def exponent_of(value: float, *, above: bool = False) -> int:
    """Return the biased exponent of a number as float32, or with `above` of the next larger float32."""
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", abs(value)))
    except OverflowError:
        return NONFINITE
    return int(min(bits + above, _INFINITY)) >> 23


def block_error_bound(exponent: int, fan_in: int, numbers: Block, *, average: bool = False) -> float:
    """Return the largest absolute error of a sum of packed values, against the exact sum of the inputs.

    With e = max(exponent, 1) every magnitude is below M = 2**(e - 126). The unit of a field of b bits is
    M * 2**(ceil(log2 fan_in) - b + 1): of the b bits, one is the sign and ceil(log2 fan_in) are room for the
    sum. Each rank's error is at most half a unit; if the value is clamped, it is less than one unit. The sum
    of the fields is exact.

    Args:
        exponent: The shared exponent of the packet.
        fan_in: Number of ranks.
        numbers: The encoding.
        average: Whether to bound the error of the average, which is rounded once more.

    Raises ValueError if there is no room for the sum of this number of ranks.
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


def error_bound(exponent: int, fan_in: int, *, average: bool = False, foreseen: bool = False) -> float:
    """Return the largest absolute error of a result, against the exact sum of the float32 inputs.

    With k = scale_log2(exponent, fan_in), each rank rounds to a multiple of 2**-k. The error is at most
    2**-k / 2; with more than 128 ranks at most 2**-k, because values may be clamped. With
    e = max(exponent, 1) the sum is below fan_in * 2**(e - 126). It is rounded to float32 at most twice: to 24
    bits, and again if it is subnormal. Where the exact sum is beyond the float32 range, the result may be
    infinite.

    Args:
        exponent: The shared exponent of the packet.
        fan_in: Number of ranks.
        average: Whether to bound the error of the average, which is rounded once more.
        foreseen: Whether the scale was foreseen, and may lose `SPARE` bits (`hostlib.core.foresight`).
    """
    largest = fan_in * math.ldexp(1.0, max(exponent, 1) - 126)
    unit = math.ldexp(1.0, (SPARE if foreseen else 0) - scale_log2(exponent, fan_in))
    rounding = fan_in * unit * (0.5 if fan_in <= 128 else 1.0)
    bound = rounding + math.ldexp(largest + rounding, -24)
    if average:
        bound = bound / fan_in + math.ldexp(largest / fan_in, -24)
    return bound + math.ldexp(1.0, -150)


def local_error_bound(largest: float, ranks: int) -> float:
    """Return the largest absolute error of the machines' own sums, if each machine sums its ranks first.

    Each sum is rounded to float32 once, by at most 2**-24 of its value; together the sums are below
    ranks * largest.
    """
    return math.ldexp(ranks * largest, -24)


def hierarchical_error_bound(
    largest: float, ranks: int, bound: Callable[[int, int], float], most: int = MAX_FAN_IN
) -> float:
    """Return the error bound of a sum over machines' own sums, for any placement of the ranks.

    The switch adds the sums of m machines, each of up to ranks - m + 1 ranks, so that exponents can be larger
    than the inputs' exponents. The bound is the worst case over all m.

    Args:
        largest: The largest magnitude among the inputs.
        ranks: Number of ranks.
        bound: `error_bound` or `block_error_bound`, as a function of exponent and number of machines.
        most: Largest number of machines for the encoding.
    """
    machines = range(1, min(ranks, most) + 1)
    worst = max(bound(exponent_of((ranks - m + 1) * largest, above=True), m) for m in machines)
    return worst + local_error_bound(largest, ranks)


def log2_ceil(fan_in: int) -> int:
    """Return the number of bits that a sum over `fan_in` ranks needs in addition to the bits of its terms."""
    if not 1 <= fan_in <= MAX_FAN_IN:
        raise ValueError(f"fan-in is {fan_in}, must be 1..{MAX_FAN_IN}")
    return (fan_in - 1).bit_length()
