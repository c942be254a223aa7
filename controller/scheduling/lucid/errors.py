"""What Lucid's parts refuse.

SchedulingError
└── LucidError
    ├── BadSample     a measurement or a piece of training data that makes no sense, or too little of it
    └── ExtraMissing  a part needs a package that is not installed; the message says which
"""

from __future__ import annotations

from controller.scheduling.errors import SchedulingError


class LucidError(SchedulingError):
    """Base of what this package raises."""


class BadSample(LucidError):
    """A measurement or training data that cannot be used."""


class ExtraMissing(LucidError):
    """An optional package is missing."""

    def __init__(self, what: str, package: str, *, extra: str = "schedulers") -> None:
        super().__init__(f"{what} needs {package}: pip install 'ina[{extra}]'")
        self.package = package
