"""Predict the exponents of a sum's packets from the last sum of the same series.

All ranks learn the same exponents from a sum's results. So all foresee the same exponents for the next sum of
the series, with the same name and length, and scale its values by them at once, instead of a round trip and a
pass over memory later. Each rank also announces the real exponent of its values. If the largest exponent of
all ranks does not fit the foreseen one, all ranks drop the values of that packet, and sum them once more.

The stored exponents depend only on the calls that were carried out, and so are the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib.wire.encodings import NONFINITE, SPARE

MARGIN: Final = 1
"""Number by which the foreseen exponent exceeds the last exponent: spare bits for larger values."""
MOST_BYTES: Final = 4 << 20
"""Maximum number of bytes of stored exponents, one for each packet: enough for 4 GB of values in packets of
256 lanes. The least recently used series are dropped first."""
_SERIES_BYTES: Final = 256
"""Bytes to count for each series in addition to its exponents."""
_MOST_MISFITS: Final = 4
"""If more than one in `_MOST_MISFITS` packets of a series did not fit, the exponents of its next sum are not
foreseen."""
_ABOVE: Final = bytes(min(exponent + MARGIN, NONFINITE - 1) if exponent else 0 for exponent in range(256))

Series = tuple[str, int]
"""Name and number of packets of calls whose exponents are likely to be similar."""


@dataclass(frozen=True, slots=True)
class _Kept:
    foreseen: bytes
    is_steady: bool


class Foresight:
    """Stored exponents by series."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept: dict[Series, _Kept] = {}
        self._bytes = 0
        self._most_bytes = most_bytes

    def foresee(self, series: Sequence[Series]) -> bytes | None:
        """Return the foreseen exponents of the packets of these series, one behind the other.

        Return None if one series is unknown, or if too many of its packets did not fit the last time.
        """
        kept = [self._kept.get(each) for each in series]
        if not all(each and each.is_steady for each in kept):
            return None
        return b"".join(each.foreseen for each in kept if each)

    def learn(self, series: Sequence[Series], found: bytes, *, all_fit: bool) -> None:
        """Store the exponents `found` in a sum of these series.

        `all_fit` is True if all packets fitted the foreseen exponents.
        """
        at = 0
        for each in series:
            _, packets = each
            part = found[at : at + packets]
            at += packets
            before = self._kept.pop(each, None)
            if before is None:
                self._bytes += packets + _SERIES_BYTES
            is_steady = (
                all_fit
                or before is None
                or _MOST_MISFITS * np.count_nonzero(misfits(part, before.foreseen)) <= packets
            )
            self._kept[each] = _Kept(_next(part, before), bool(is_steady))
        while self._bytes > self._most_bytes:
            oldest = next(iter(self._kept))
            self._bytes -= len(self._kept.pop(oldest).foreseen) + _SERIES_BYTES


def misfits(found: bytes | NDArray[Any], foreseen: bytes | NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each packet whether its sum, of values scaled by the foreseen exponent, is unusable.

    It is unusable if a value was too large for the scale, or if all values lost more than `SPARE` bits. A
    packet of zeros is right with any scale, and NaN needs none; `found` shows both cases.
    """
    exponents = np.frombuffer(found, np.uint8).astype(np.int16)
    above = np.frombuffer(foreseen, np.uint8) - exponents
    is_wrong: NDArray[np.bool_] = (
        ((above < 0) | (above > SPARE)) & (exponents != 0) & (exponents != NONFINITE)
    )
    return is_wrong


def _next(found: bytes, before: _Kept | None) -> bytes:
    """Return the exponents to foresee after `found`.

    Packets of zeros or with NaN have no exponent: repeat the exponents in `before` for them.
    """
    if before is None or not (0 in found or NONFINITE in found):
        return found.translate(_ABOVE)
    exponents = np.frombuffer(found, np.uint8)
    has_exponent = (exponents != 0) & (exponents != NONFINITE)
    after = np.frombuffer(found.translate(_ABOVE), np.uint8)
    return np.where(has_exponent, after, np.frombuffer(before.foreseen, np.uint8)).tobytes()
