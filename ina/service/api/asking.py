"""What the routes have in common: their parameters, the author of a request, and answers in JSON."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from starlette.responses import Response

from ina.service.api.access import Gate, operator, own
from ina.service.api.guard import Peer
from ina.service.api.problems import Problem
from ina.service.daemon import Daemon
from ina.service.records import JobRecord
from ina.service.tokens import Person

MAX_PAGE = 1_000
"""Maximum number of jobs, or of lines of the log, in one answer."""


class Json(Response):
    """An answer in JSON, with all characters outside ASCII escaped."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Convert `content` to JSON. Content of type bytes must be JSON already, and is not changed."""
        if isinstance(content, bytes):
            return content
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


async def service_of(request: Request) -> Daemon:
    """Return the service that answers a request. Raises Problem until the service is ready."""
    service: Daemon = request.app.state.service
    if service.ready:
        raise Problem(503, f"not yet: {service.ready}", headers={"Retry-After": "1"})
    return service


async def person_of(request: Request) -> Person:
    """Return the author of a request. Raises Problem for an unknown author."""
    gate: Gate = request.app.state.gate
    peer: Peer = request.scope["state"]["peer"]  # see `ina.service.api.web`
    return gate.person(request.headers.get("authorization"), peer.uid)


async def _operator(person: Annotated[Person, Depends(person_of)]) -> Person:
    operator(person)
    return person


BEARER = HTTPBearer(
    auto_error=False,
    description="A token of 'ina controller token add'; see docs/explanations/security-controller.md.",
)
Serving = Annotated[Daemon, Depends(service_of)]
Asker = Annotated[Person, Depends(person_of)]
Operator = Annotated[Person, Depends(_operator)]
Tenants = Annotated[
    str | None, Query(alias="tenant", description="For operators: the tenant whose job has this name.")
]


async def _own(name: str, service: Serving, person: Asker, tenant: Tenants = None) -> JobRecord:
    return own(service, person, name, tenant)


Own = Annotated[JobRecord, Depends(_own)]
After = Annotated[
    int,
    Query(
        ge=-MAX_PAGE,
        le=1 << 53,
        description="Return only entries with a number above this one; -N: return the latest N entries.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Maximum number of entries to return.")]
Follow = Annotated[
    bool, Query(description="Answer with server-sent events: all past entries, then each new one.")
]
Last = Annotated[
    int,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=1 << 53,
        description="With follow: continue after the event with this id.",
    ),
]


MOST = 1_000_000_000
Number = Annotated[StrictInt, Field(ge=0, le=MOST)]
Tenant = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="The name of a tenant.")
]


class Wanted(BaseModel):
    """The quota and the reservation that a request sets."""

    model_config = ConfigDict(extra="forbid")

    gpus: Number | None = Field(
        default=None,
        description="Maximum number of GPUs for the tenant's jobs; further jobs wait. null: no limit.",
    )
    per_minute: Annotated[StrictInt, Field(ge=1, le=MOST)] | None = Field(
        default=None,
        description="Maximum number of jobs that the tenant may submit in a minute. null: no limit.",
    )
    reserved: Number = Field(
        default=0, description="Number of GPUs that are kept free for the tenant's jobs."
    )
