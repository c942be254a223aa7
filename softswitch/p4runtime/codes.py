"""The status codes of gRPC that errors of requests have, in every service of the switch."""

from __future__ import annotations

from typing import Final

import grpc

from softswitch.p4runtime import errors

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
