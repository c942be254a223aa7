"""Slots of a switch, and how jobs use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["exclusive", "shared"]
"""Use of a switch's slots: each job its own region, or all in one array."""


@dataclass(frozen=True, slots=True)
class Region:
    """Slots `offset` to `offset + size - 1` of a switch."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The first slot after the region."""
        return self.offset + self.size
