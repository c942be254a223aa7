"""Slots of a switch, how jobs use them, and the content of their packets: names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

Mode = Literal["shared", "exclusive"]
"""Use of a switch's slots: each job its own region, or all in one array."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

CONGESTION: Final = ("fixed", "aimd", "a2tp")
"""Rules for a worker's window: fixed, AIMD on ECN marks (ATP), or A2TP's two windows.

Other names are those of rules from outside (``docs/windows.md``).
"""
CONGESTION_GROUP: Final = "ina.congestion"
"""Entry points by which packages offer rules."""

OnLate = Literal["end", "best-effort"]
"""What becomes of a job whose deadline cannot be met any more: it is ended, or goes on as if it had none."""
ON_LATE: Final[tuple[OnLate, ...]] = get_args(OnLate)

Encoding = Literal["exponent", "block16", "block8", "block4", "fixed"]
"""Encoding of float32 in packets: one exponent a packet, the same in 16, 8 or 4 bits, or a fixed scale."""
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)

MAX_PRIORITY: Final = 255
"""Highest priority of a packet: the header has 8 bits for it."""
MAX_WINDOW: Final = 1 << 16
"""Most packets of a worker in flight."""


@dataclass(frozen=True, slots=True)
class Region:
    """Slots `offset` to `offset + size - 1` of a switch."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The first slot after the region."""
        return self.offset + self.size
