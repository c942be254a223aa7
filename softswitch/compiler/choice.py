"""Choices for values that P4 leaves undefined."""

from __future__ import annotations

from enum import StrEnum


class Choice(StrEnum):
    """Values of undefined reads; see `softswitch.compiler.undefined.settle`."""

    ZERO = "zero"
    RANDOM = "random"
    BMV2 = "bmv2"
