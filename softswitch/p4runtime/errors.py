"""Errors of the P4Runtime service; `softswitch.p4runtime.server` alone knows the gRPC codes.

    RequestError
    ├── InvalidArgument     the request is malformed, whatever the state of the switch
    ├── NotFound            the request names an entity, device or role that does not exist
    ├── AlreadyExists       the request inserts an entity that already exists
    ├── PermissionDenied    the sender may not write, or the program forbids the write
    ├── ResourceExhausted   a table is full
    ├── FailedPrecondition  the switch or the stream is not in a state that allows the request
    ├── OutOfRange          an index beyond the end of a counter, meter or register
    ├── Aborted             an update reverted, or not begun, because another update of its batch failed
    └── Unimplemented       a standard P4Runtime feature that this switch does not support

Every message states the problem, the value seen and the right form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RequestError(Exception):
    """Base of all errors with which a request can be refused."""


class InvalidArgument(RequestError):
    """The request is malformed, whatever the state of the switch."""


class NotFound(RequestError):
    """The request names something that does not exist."""


class AlreadyExists(RequestError):
    """The request inserts an entity that already exists."""


class PermissionDenied(RequestError):
    """The sender has no right to make the request, or the P4 program forbids the write."""


class ResourceExhausted(RequestError):
    """A table is full, or too many streams are open."""


class FailedPrecondition(RequestError):
    """The switch or the stream is not in a state that allows the request."""


class OutOfRange(RequestError):
    """An index is beyond the end of a counter, meter or register."""


class Aborted(RequestError):
    """The update was reverted, or not begun, because another update of its batch failed."""


class Unimplemented(RequestError):
    """The request uses a standard P4Runtime feature that this switch does not support."""


def outcome(do: Callable[..., object], *arguments: Any) -> RequestError | None:
    """Do a part of a batch, and return the error with which it is refused."""
    try:
        do(*arguments)
    except RequestError as error:
        return error
    return None
