"""Errors of descriptions of jobs, clusters, topologies and trees.

ControllerError
└── BadSpec     an invalid job, cluster, topology, tree or option; the message says what would be valid
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base class of all errors of the package `controller`."""

    exit_code = 1
    """Exit code of a command that this ends."""


class BadSpec(ControllerError):
    """An invalid job, profile, cluster, topology, tree or option.

    Attributes:
        where: The way to what is wrong in the document that it was read from; (): unknown, or no document.
        message: What is wrong, without the document's name and line.
    """

    exit_code = 2

    def __init__(
        self, text: str = "", *, where: tuple[str | int, ...] = (), message: str | None = None
    ) -> None:
        super().__init__(text)
        self.where = where
        self.message = text if message is None else message
