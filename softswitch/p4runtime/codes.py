"""The status codes of gRPC that errors of requests have, in every service of the switch."""

from __future__ import annotations

from typing import Final

import grpc

from softswitch.p4runtime import errors

MAX_MESSAGE = 64 << 20
"""Longest message taken, bytes: a thousand times the programs here, and batches of half a million entries."""

MAX_UNREAD = 64 << 20
"""Most data waiting on a stream whose client does not read, bytes; further packets and errors are dropped."""


CODES: Final = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    errors.Aborted: grpc.StatusCode.ABORTED,
    errors.Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
}
