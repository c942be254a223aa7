"""What describing jobs, clusters, topologies and trees can fail with.

ControllerError
└── BadSpec     a job, cluster, topology, tree or option that makes no sense; the message says what would
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base of everything that the package `controller` raises."""


class BadSpec(ControllerError):
    """A job, profile, cluster, topology, tree or option that makes no sense.

    Attributes:
        where: The way to what is wrong in the document that it was read from; (): unknown, or no document.
        message: What is wrong, without the document's name and line.
    """

    def __init__(
        self, text: str = "", *, where: tuple[str | int, ...] = (), message: str | None = None
    ) -> None:
        super().__init__(text)
        self.where = where
        self.message = text if message is None else message
