"""Errors of the schedulers, the grouper and the simulator.

BadSpec            an invalid job, profile, cluster or option (`controller.vocabulary.errors`)
SchedulingError
├── BadTrace       a trace file that cannot be read; file, line and column are in the message
├── BadInput       data that a family of policies cannot use, or a job that it cannot run
├── BadDecision    a policy's decision is impossible: a GPU twice, a job twice, a job that does not exist
├── Stuck          jobs wait, nothing runs, and nothing will ever change that
└── ExtraMissing   a part needs a package that is not installed; the message says how to get it

BadSpec and SchedulingError are subclasses of `ControllerError`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from controller.vocabulary.errors import BadSpec, ControllerError

__all__ = [
    "BadDecision",
    "BadInput",
    "BadSpec",
    "BadTrace",
    "ExtraMissing",
    "SchedulingError",
    "Stuck",
]


class SchedulingError(ControllerError):
    """Base class of the errors of scheduling."""


class BadInput(SchedulingError):
    """Data that a family of policies cannot use, or a job that a family of policies cannot run."""

    exit_code = 2


class BadDecision(SchedulingError):
    """A policy's decision is impossible."""


class Stuck(SchedulingError):
    """Jobs wait, nothing runs, and nothing will ever change that."""


class ExtraMissing(SchedulingError):
    """An optional package is missing."""

    def __init__(self, what: str, package: str, *, extra: str = "schedulers") -> None:
        super().__init__(f"{what} needs {package}: pip install 'ina[{extra}]'")


def needed(module: str, what: str, package: str) -> ModuleType:
    """Return a module of an optional package. Raises ExtraMissing, for `what`, without the package."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ExtraMissing(what, package) from None


class BadTrace(SchedulingError):
    """A trace file that cannot be read, with `path`, `line` (0: the whole file) and `column` ("": any)."""

    exit_code = 2

    def __init__(self, path: str, line: int, column: str, message: str) -> None:
        where = f"{path}:{line}" if line else path
        super().__init__(f"{where}: {f'column {column}: ' if column else ''}{message}")
        self.path = path
        self.line = line
        self.column = column
