"""Errors of the Synergy schedulers.

SchedulingError
└── SynergyError
    ├── BadMatrix      a sensitivity matrix, or the file it comes from, that cannot be used
    ├── BadDemand      a job that this cluster can never serve
    └── Infeasible     a set of jobs for which no allocation exists; the message says what is short
"""

from __future__ import annotations

from controller.policies.scheduling.errors import BadInput, SchedulingError


class SynergyError(SchedulingError):
    """Base class of this package's errors."""


class BadMatrix(SynergyError, BadInput):
    """A sensitivity matrix that cannot be used."""


class BadDemand(SynergyError, BadInput):
    """A job that this cluster can never serve."""


class Infeasible(SynergyError):
    """No allocation exists for these jobs."""
