"""Choices for values that P4 leaves undefined."""

from __future__ import annotations

from enum import StrEnum


class Choice(StrEnum):
    """The values that undefined reads get: zero, random, or as in BMv2.

    See `softswitch.compiler.undefined.settle`.
    """

    ZERO = "zero"
    RANDOM = "random"
    BMV2 = "bmv2"
