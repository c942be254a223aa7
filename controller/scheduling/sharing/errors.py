"""Errors of sharing for heterogeneous job sizes.

SchedulingError
└── SharingError
    ├── UnknownModel    a job whose kind nobody measured
    ├── BadMeasurement  speeds, reference jobs or a profile that make no sense
    └── BadTraining     too little to train on, or options out of range
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.scheduling.errors import BadInput, SchedulingError


class SharingError(SchedulingError):
    """Base of what this package raises."""


class UnknownModel(SharingError):
    """A kind of job that nobody measured."""

    def __init__(self, kind: str, known: Iterable[str]) -> None:
        names = sorted(known)
        few = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        super().__init__(f"nothing was measured of {kind!r}; known are {few or 'none'}")
        self.kind = kind


class BadMeasurement(SharingError, BadInput):
    """Measurements that cannot be used."""


class BadTraining(SharingError):
    """Training that cannot be done."""
