"""Problem documents (RFC 9457): converts errors to answers with status codes, and lists these for OpenAPI."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from controller.vocabulary import BadSpec
from controller.vocabulary.documents import json_schema
from controller.vocabulary.schema import JOB, MAX_WORKERS
from ina.errors import Conflict, ServiceError, StoreError, TooMany, Unknown

TYPE = "application/problem+json"

_TITLES: Mapping[int, str] = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "Not allowed",
    404: "Not there",
    405: "This resource does not have that method",
    408: "The request took too long",
    409: "The request conflicts with the current state",
    413: "The request is too large",
    415: "The content type is not supported",
    421: "This server does not have that name",
    422: "A value is wrong",
    429: "Too many at once",
    431: "The head of the request is too large",
    500: "Internal error",
    503: "Not now",
}


class Problem(Exception):
    """A refusal of a request.

    Attributes:
        status: The HTTP status code.
        detail: The error, the wrong value, and the valid values.
        pointer: JSON pointer to the wrong value in the body (RFC 6901); None: it is not in the body.
        parameter: Name of the wrong query parameter or header; None: none.
        headers: Headers of the answer besides its content type.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        pointer: str | None = None,
        parameter: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.pointer = pointer
        self.parameter = parameter
        self.headers = headers

    def response(self) -> Response:
        """Return the HTTP response that has the problem document."""
        found: dict[str, object] = {
            "type": "about:blank",
            "title": _TITLES.get(self.status, "It cannot be done"),
            "status": self.status,
            "detail": self.detail,
        }
        if self.pointer is not None:
            found["pointer"] = self.pointer
        if self.parameter is not None:
            found["parameter"] = self.parameter
        return Response(json.dumps(found), self.status, headers=self.headers, media_type=TYPE)

    def written(self) -> bytes:
        """Return the response as bytes of HTTP/1.1; its headers announce that the connection is closed."""
        answer = self.response()
        answer.headers["Connection"] = "close"
        head = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        return "\r\n".join([*head, "", ""]).encode("latin-1") + bytes(answer.body)


def pointer(where: tuple[str | int, ...]) -> str:
    """Convert the path of a value in a JSON document to a JSON pointer.

    >>> pointer(("jobs", 0, "a/b"))
    '/jobs/0/a~1b'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in where)


def problem_of(error: Exception) -> Problem:
    """Convert an error to a problem document, without details if the error is unexpected."""
    match error:
        case Problem():
            return error
        case BadSpec():
            # files call the list of jobs "job", requests "jobs"
            where = ("jobs", *error.where[1:]) if error.where[:1] == ("job",) else error.where
            return Problem(422, error.message, pointer=pointer(where or ("jobs",)))
        case Unknown():
            return Problem(404, str(error))
        case Conflict():
            return Problem(409, str(error))
        case TooMany():
            return Problem(429, str(error), headers={"Retry-After": str(math.ceil(error.after_s))})
        case StoreError():
            return Problem(503, str(error), headers={"Retry-After": "5"})
        case ServiceError():
            return Problem(503, str(error))
        case RequestValidationError():
            first = error.errors()[0]
            place, *way = first["loc"]
            if place == "body":
                if first["type"] == "json_invalid":
                    return Problem(400, f"not JSON: {first['ctx']['error']}")
                return Problem(422, _of_value(first), pointer=pointer(tuple(way)))
            return Problem(422, _of_value(first), parameter=str(way[0] if way else place))
        case HTTPException():
            return Problem(error.status_code, _of_http(error), headers=error.headers)
        case _:
            return Problem(500, "please report this; the service's log has the details")


def _of_value(found: Mapping[str, Any]) -> str:
    return f"{found['msg']}; got {found['input']!r:.80}"


def _of_http(error: HTTPException) -> str:
    match error.status_code:
        case 404:
            return "there is no such resource; /v1/openapi.json lists all resources"
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            return f"want one of {allowed}" if allowed else "want another method"
        case _:
            return str(error.detail)


async def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 405:
        error = HTTPException(405, headers={"Allow": ", ".join(sorted(_methods(request)))})
    return problem_of(error).response()


def _methods(request: Request) -> set[str]:
    """Return the HTTP methods that the resource of a request supports, from all of its routes."""
    return {
        method
        for route in request.app.state.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }


def register(app: FastAPI) -> None:
    """Register handlers with an application that answer all errors with problem documents."""
    for kind in (Problem, BadSpec, ServiceError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)


MAX_JOBS = 10_000
"""Maximum number of jobs in one request."""
MAX_RANKS = MAX_WORKERS
NAME = r"^[A-Za-z0-9][\w.-]{0,199}$"
"""Pattern of the name of an external job, which is a job whose workers another launcher starts."""

_PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "The error, the wrong value, and the valid values (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "pointer": {"type": "string", "description": "JSON pointer to the value in the body (RFC 6901)."},
        "parameter": {"type": "string", "description": "Name of the wrong query parameter or header."},
    },
}
_MEANINGS: Mapping[int, str] = {
    400: "The request cannot be read.",
    401: "No token, or one that is not known.",
    403: "Not allowed with this role, or from a page of another site.",
    404: "The resource does not exist, or belongs to another tenant.",
    408: "The body took too long.",
    409: "The request conflicts with the current state.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header is not a name of this server.",
    422: "A value is wrong.",
    429: "The tenant has submitted too many jobs within a minute; see Retry-After.",
    500: "An error of the service.",
    503: "Not possible now: the service is starting, or cannot write its state.",
}
_EVERY = (400, 401, 403, 404, 408, 409, 413, 421, 422, 500, 503)

Responses = dict[int | str, dict[str, Any]]


def refusals(*more: int) -> Responses:
    """Return the OpenAPI descriptions of refusals, by status code.

    They are the refusals with which every operation may answer, and the refusals with the status codes
    `more`.
    """
    content = {TYPE: {"schema": _PROBLEM}}
    return {
        status: {"description": _MEANINGS[status], "content": content} for status in sorted({*_EVERY, *more})
    }


STREAM: Responses = {
    200: {
        "description": "The answer; with `follow`, a stream of server-sent events.",
        "content": {"text/event-stream": {}},
    }
}
TEXT: Responses = {
    200: {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def _job() -> dict[str, Any]:
    keys = {
        name: {**json_schema(key.check), "description": f"{key.meaning}. Default: {key.default}."}
        for name, key in JOB.items()
    }
    return {
        "type": "object",
        "title": "Job",
        "required": ["name", "workers", "command"],
        "properties": keys,
        "additionalProperties": False,
    }


SUBMISSION: Mapping[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["jobs"],
                    "additionalProperties": False,
                    "properties": {
                        "jobs": {"type": "array", "minItems": 1, "maxItems": MAX_JOBS, "items": _job()}
                    },
                }
            }
        },
    }
}
