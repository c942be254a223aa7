"""Errors of Lucid's parts.

SchedulingError
└── LucidError
    └── BadSample  a measurement or a piece of training data that makes no sense, or too little of it
"""

from __future__ import annotations

from controller.scheduling.errors import BadInput, SchedulingError


class LucidError(SchedulingError):
    """Base of what this package raises."""


class BadSample(LucidError, BadInput):
    """A measurement or training data that cannot be used."""
