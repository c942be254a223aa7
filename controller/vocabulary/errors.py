"""Errors of descriptions of jobs, clusters, topologies and trees.

ControllerError
└── BadSpec     an invalid job, cluster, topology, tree or option; the message says what would be valid
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base class of all errors of the package `controller`."""

    exit_code = 1
    """Exit code of a command that ends with this error."""


class BadSpec(ControllerError):
    """An invalid job, profile, cluster, topology, tree or option.

    Attributes:
        where: The path of the wrong value in its document; (): unknown, or no document.
        message: The error, without the document's name and line.
    """

    exit_code = 2

    def __init__(
        self, text: str = "", *, where: tuple[str | int, ...] = (), message: str | None = None
    ) -> None:
        super().__init__(text)
        self.where = where
        self.message = text if message is None else message


# ---------------------------------------------------------------------------
# Texts for messages: a number of things, and the kind of a value.


def plural(number: float, noun: str) -> str:
    """Return a number of things; the noun gets an -s unless the number is 1.

    >>> plural(1, "GPU"), plural(0, "slot"), plural(2.5, "iteration")
    ('1 GPU', '0 slots', '2.5 iterations')
    """
    shown = f"{number:g}" if isinstance(number, float) else f"{number}"
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"


def kind(value: object) -> str:
    """Return the kind of a value for an error message: None, or its class."""
    return "None" if value is None else f"of type {type(value).__name__}"
