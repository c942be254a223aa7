"""What the API's schema says beyond what FastAPI finds out: refusals, and the description of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.vocabulary.documents import json_schema
from controller.vocabulary.schema import JOB, MAX_WORKERS
from ina.service.api.problems import TYPE

MAX_JOBS = 10_000
"""In one request."""
MAX_RANKS = MAX_WORKERS
NAME = r"^[A-Za-z0-9][\w.-]{0,199}$"
"""What the name of an external job looks like."""

_PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "What was wrong, the value, and what would be right (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "pointer": {"type": "string", "description": "The path of the value in the body (RFC 6901)."},
        "parameter": {"type": "string", "description": "The name of the parameter or header."},
    },
}
_MEANINGS: Mapping[int, str] = {
    400: "The request cannot be read.",
    401: "No token, or one that is not known.",
    403: "Not allowed with this role, or from a page of another site.",
    404: "There is none, or it is another tenant's.",
    408: "The body took too long.",
    409: "It conflicts with the present state.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header is not a name of this server.",
    422: "A value is wrong.",
    429: "More jobs than the tenant may submit in this time; see Retry-After.",
    500: "An error of the service.",
    503: "Not possible now: the service is starting, or cannot write its state.",
}
_EVERY = (400, 401, 403, 404, 408, 409, 413, 421, 422, 500, 503)

Responses = dict[int | str, dict[str, Any]]


def refusals(*more: int) -> Responses:
    """Return the refusals that every operation may answer with, and these."""
    content = {TYPE: {"schema": _PROBLEM}}
    return {
        status: {"description": _MEANINGS[status], "content": content} for status in sorted({*_EVERY, *more})
    }


STREAM: Responses = {
    200: {
        "description": "The answer; with follow a stream of server-sent events.",
        "content": {"text/event-stream": {}},
    }
}
TEXT: Responses = {
    200: {"description": "The figures.", "content": {"text/plain": {"schema": {"type": "string"}}}}
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
