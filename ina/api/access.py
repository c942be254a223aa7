"""Who asks and for what: the author of a request, the author's rights, and parameters that routes share."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from starlette.responses import Response

from controller.vocabulary import Job
from ina.api.guard import Peer
from ina.api.problems import Problem
from ina.errors import Conflict, Unknown
from ina.run.daemon import Daemon
from ina.run.records import JobRecord
from ina.run.tokens import Person, Role, Tokens

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="ina"'}


class Gate:
    """Checks who may use the service.

    Args:
        tokens: The service's tokens.
        local: Whether only this machine can connect. If it is true, and there are no tokens, the controller's
            own user and root are operators, and other users have no access.
    """

    def __init__(self, tokens: Tokens, *, local: bool) -> None:
        self._tokens = tokens
        self._local = local

    def person(self, authorization: str | None, user: Callable[[], int | None]) -> Person:
        """Return the author of a request. Raises Problem for an unknown author, and StoreError.

        Args:
            authorization: The request's Authorization header; None: the request has none.
            user: Returns the ID of the user of this machine who sent the request; None: unknown.
        """
        if self._local and not self._tokens.grants():
            if user() in (0, os.geteuid()):
                return Person("", Role.OPERATOR)
            raise Problem(
                401,
                "without a token only the controller's own user and root may ask: want a header"
                " 'Authorization: Bearer TOKEN' with a token of 'ina controller token add'",
                headers=_CHALLENGE,
            )
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Problem(401, "want a header 'Authorization: Bearer TOKEN'", headers=_CHALLENGE)
        found = self._tokens.person(token.strip())
        if found is None:
            raise Problem(401, "this token is not known, or has been removed", headers=_CHALLENGE)
        return found


def own(service: Daemon, person: Person, reference: str, tenant: str | None = None) -> JobRecord:
    """Return the job that a request names.

    Args:
        service: The service.
        person: The author of the request.
        reference: A job's id, number or name. A name means the newest job of that name of the person's own
            tenant. If there is none, an operator gets the newest job of that name of another tenant, unless
            several tenants have one.
        tenant: If not None, `reference` is a name, and means this tenant's job.

    Raises Unknown if there is no such job or the person may not see it, and Conflict if several tenants have
    a job of that name.
    """
    visible = [
        each
        for each in service.ledger.named(reference)
        if person.owns(each.tenant) and (tenant is None or (tenant, reference) == (each.tenant, each.called))
    ]
    named = [each for each in visible if each.called == reference]
    if own_ones := [each for each in named if each.tenant == person.name]:
        named = own_ones
    exact = [each for each in visible if each.called != reference]
    if not visible:
        raise _unknown(reference, tenant)
    if len(exact) + len(tenants := {each.tenant for each in named}) > 1:
        ways = [each.job.name for each in exact] + [f"{each}/{reference}" for each in sorted(tenants)]
        raise Conflict(f"{reference[:80]!r} may mean several jobs: want one of {', '.join(ways)}")
    return service.reports.record((exact or named)[-1].job.name)


def gone(service: Daemon, person: Person, reference: str, tenant: str | None = None) -> Mapping[str, Any]:
    """Return the latest of the archived jobs that a request names and that the person may see.

    Args:
        service: The service.
        person: The author of the request.
        reference: A job's id, number or name.
        tenant: The job's tenant; None: any.

    Raises Unknown if there is none.
    """
    for each in service.ledger.archived(reference):
        if person.owns(each["tenant"]) and tenant in (None, each["tenant"]):
            return each
    raise _unknown(reference, tenant)


def _unknown(reference: str, tenant: str | None) -> Unknown:
    name = reference if tenant is None else f"{tenant}/{reference}"
    return Unknown(f"there is no job {name[:80]!r}")


def as_user(jobs: Sequence[Job], person: Person, own_uid: int | None = None) -> list[Job]:
    """Return the jobs, each with the user account under which its command runs.

    Submitters cannot choose that user. A controller that runs as root uses the user stored with the tenant's
    token, and refuses tokens without a user: a tenant's name is not a user name. Any other controller, and a
    controller without tokens, runs commands under its own user. `own_uid` is the controller's user ID; None:
    this process's user ID.

    Raises Problem if the token's user does not exist, or if the controller may not become that user.
    """
    user = _user(person, os.geteuid() if own_uid is None else own_uid)
    return [
        replace(
            job,
            extra={
                **{name: value for name, value in job.extra.items() if name != "user"},
                **({"user": user} if user else {}),
            },
        )
        for job in jobs
    ]


def _user(person: Person, own_uid: int) -> str:
    """Return the name of the user under which a person's commands run; "": the controller's own user."""
    if not person.name:
        return ""
    if not person.user:
        if own_uid:
            return ""
        raise Problem(
            403,
            f"the token of {person.name!r} has no user for its commands, and this controller is root: add"
            f" one that has, with 'ina controller token add {person.name} --user USER'",
        )
    try:
        uid = pwd.getpwnam(person.user).pw_uid
    except KeyError:
        raise Problem(
            403,
            f"there is no user {person.user!r} on this machine, as which commands of {person.name!r} would"
            f" run: remove the token, and add another, with 'ina controller token add {person.name} --user"
            " USER'",
        ) from None
    if own_uid not in (0, uid):
        raise Problem(
            403, f"commands of {person.name!r} run as user {person.user!r}, which only root may become"
        )
    return "" if uid == own_uid else person.user


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
    peer: Peer = request.scope["state"]["peer"]  # see `ina.api.web`
    return gate.person(request.headers.get("authorization"), peer.uid)


async def _operator(person: Annotated[Person, Depends(person_of)]) -> Person:
    if not person.operates:
        raise Problem(403, f"{person.name!r} is a submitter; only operators may do this")
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
    int | None,
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
