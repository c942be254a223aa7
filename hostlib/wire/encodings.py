"""Encodings of float32 by name, and how many ranks each has room for; `quantize` computes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

Encoding = Literal["exponent", "block16", "block8", "block4", "fixed"]
"""How a job's float32 travel: one exponent a packet, the same in 16, 8 or 4 bits, or one fixed scale."""
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)

Numbers = Literal["exponent", "block16", "block8", "block4"]
"""Those that a collective may have of its own: the fixed scale is a whole job's."""
NUMBERS: Final[tuple[Numbers, ...]] = get_args(Numbers)
Block = Literal["block16", "block8", "block4"]
BLOCKS: Final[tuple[Block, ...]] = get_args(Block)
_PER_LANE: Final[Mapping[str, int]] = {"block16": 2, "block8": 4, "block4": 8}

MAX_FAN_IN: Final = 1024
"""Ranks for which the scale leaves at least 21 bits to a value."""

_INT32_MAX: Final = 2**31 - 1


def per_lane(numbers: Encoding) -> int:
    """Return the number of values in each lane: 1, or 2, 4 or 8 fields of 16, 8 or 4 bits."""
    return _PER_LANE.get(numbers, 1)


def most_ranks(numbers: Encoding) -> int:
    """Return the largest number of ranks whose sum an encoding has room for: block8 127, block4 7."""
    return min(MAX_FAN_IN, _INT32_MAX >> (32 - width(per_lane(numbers))))


def why_no_room(numbers: Encoding, fan_in: int) -> str | None:
    """Say why the sum of so many ranks does not fit the fields of an encoding; None if it does."""
    if fan_in <= (most := most_ranks(numbers)):
        return None
    return f"{numbers} has room for the sum of at most {most} ranks, and there are {fan_in}"


def width(fields: int) -> int:
    """Return the bits of each of so many fields in a lane."""
    return 32 // fields
