"""What to make of what P4 leaves undefined."""

from __future__ import annotations

from enum import StrEnum


class Choice(StrEnum):
    """What undefined values are; see `softswitch.compiler.undefined.settle`."""

    ZERO = "zero"
    RANDOM = "random"
    BMV2 = "bmv2"
