"""Errors of Lucid's parts.

SchedulingError
└── LucidError
    └── BadSample  invalid measurements or training data, or too little of it
"""

from __future__ import annotations

from controller.policies.scheduling.errors import BadInput, SchedulingError


class LucidError(SchedulingError):
    """Base class of this package's errors."""


class BadSample(LucidError, BadInput):
    """Invalid measurements or training data."""
