"""Errors of sharing for heterogeneous job sizes.

SchedulingError
└── SharingError
    ├── UnknownModel    a job whose kind was not measured
    ├── BadMeasurement  invalid speeds, reference jobs or profile
    └── BadTraining     too little to train on, or options out of range
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.policies.scheduling.errors import BadInput, SchedulingError


class SharingError(SchedulingError):
    """Base class of this package's errors."""


class UnknownModel(SharingError):
    """A kind of job that was not measured."""

    def __init__(self, kind: str, known: Iterable[str]) -> None:
        names = sorted(known)
        few = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        super().__init__(f"nothing was measured of {kind!r}; known are {few or 'none'}")
        self.kind = kind


class BadMeasurement(SharingError, BadInput):
    """Invalid measurements."""


class BadTraining(SharingError):
    """Too little to train on, or options out of range."""
