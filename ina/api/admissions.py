"""The resource ``/v1/admissions``: jobs whose workers another launcher starts, their leases and ends.

``POST /v1/admissions`` needs a tenant's token, like any submission. It contains the SHA-256 of another token,
which the client chooses for this job alone. Later requests about the job may use either token.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from starlette.responses import Response

from controller.vocabulary import BadSpec, Job, documents, jobs_of
from ina.api.access import BEARER, Asker, Json, Serving, own, person_of
from ina.api.problems import MAX_RANKS, NAME, Problem, pointer, refusals
from ina.run import views
from ina.run.daemon import Daemon
from ina.run.records import LEASE_S
from ina.run.views import JobGrant

router = APIRouter(prefix="/v1/admissions", dependencies=[Depends(BEARER)], responses=refusals())


class Machine(BaseModel):
    """A machine on which workers of a job run."""

    model_config = ConfigDict(extra="forbid")

    known_as: Annotated[list[Annotated[str, Field(max_length=255)]], Field(min_length=1, max_length=64)] = (
        Field(description="Names and addresses of the machine; one must belong to a server of the cluster.")
    )
    ranks: Annotated[list[StrictInt], Field(min_length=1, max_length=MAX_RANKS)] = Field(
        description="The ranks on the machine."
    )


class Asked(BaseModel):
    """A request to admit a job whose workers another launcher starts."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=NAME)] = Field(description="The job's name.")
    machines: Annotated[list[Machine], Field(min_length=1, max_length=MAX_RANKS)] = Field(
        description="The machines on which its workers run."
    )
    job: dict[str, Any] = Field(
        default_factory=dict,
        description="Further keys of a `[[job]]` table (docs/reference/files.md): deadline_s, iterations and "
        "the like.",
    )
    token_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the job's own token: at least 16 random bytes, chosen by the client."
    )


class Renewed(BaseModel):
    """A request to renew a job's lease, which also reports the job's progress."""

    model_config = ConfigDict(extra="forbid")

    done: Annotated[StrictInt, Field(ge=0, le=1 << 53)] | None = Field(
        default=None, description="Iterations that the job has done since its workers started."
    )


class Left(BaseModel):
    """A report that a job's workers have ended."""

    model_config = ConfigDict(extra="forbid")

    failure: Annotated[str, Field(max_length=4000)] = Field(default="", description='Error; "": none.')


_FIXED = ("name", "workers", "servers", "command", "extra", "arrival_s", "fallback", "tree", "mode")
"""Keys that `Asked.job` must not have: they follow from other fields of the request, or the controller sets
them."""


async def _holder(name: str, request: Request, service: Serving) -> str:
    """Return the id of the job that a request names, if the request has that job's token or its owner's.

    Raises Problem for another token.
    """
    _, _, token = request.headers.get("authorization", "").partition(" ")
    shown = hashlib.sha256(token.strip().encode(errors="surrogatepass")).hexdigest()
    for submission in service.ledger.named(name):
        if submission.holder and hmac.compare_digest(submission.holder, shown):
            return submission.job.name
    return own(service, await person_of(request), name).name


Held = Annotated[str, Depends(_holder)]


@router.post("", status_code=201, response_model=views.AdmissionView, responses=refusals(429))
async def admit(
    asked: Asked,
    service: Serving,
    person: Asker,
    idempotency_key: Annotated[
        str,
        Header(
            alias="Idempotency-Key",
            max_length=200,
            description="A request that repeats an earlier key returns the earlier job.",
        ),
    ] = "",
) -> Response:
    """Request the admission of a job whose workers another launcher starts, on the machines of the workers.

    The job waits in the queue like any other job. From now on the client must renew the job's lease.
    """
    record = await service.admit(
        _job(asked, service), holder=asked.token_sha256, tenant=person.name, key=idempotency_key
    )
    stop = record.reason if record.over else ""
    return Json(views.of_admission(record, stop, LEASE_S, service.ledger.now_s), 201)


@router.put("/{name}", response_model=views.AdmissionView)
async def renew(name: Held, renewed: Renewed, service: Serving) -> Response:
    """Renew the lease of a job. If `stop` in the answer is not "", the workers must end for that reason."""
    stop = await service.renew(name, renewed.done)
    return Json(views.of_admission(service.reports.record(name), stop, LEASE_S, service.ledger.now_s))


@router.get("/{name}", response_model=JobGrant)
async def grant(name: Held, service: Serving) -> Response:
    """Return the settings that the workers of an admitted job need. The job's state must be running."""
    return Json(service.grant(name))


@router.post("/{name}/end", response_model=views.AdmissionView)
async def end(name: Held, left: Left, service: Serving) -> Response:
    """Report that the workers of an admitted job have ended."""
    stop = await service.leave(name, left.failure)
    return Json(views.of_admission(service.reports.record(name), stop, LEASE_S, service.ledger.now_s))


def _job(asked: Asked, service: Daemon) -> Job:
    """Return the job that a request describes. Raises Problem, with the path of the wrong value."""
    servers: dict[int, str] = {}
    for number, machine in enumerate(asked.machines):
        try:
            server = service.machine(machine.known_as)
        except BadSpec as error:
            raise Problem(422, error.message, pointer=f"/machines/{number}/known_as") from None
        servers |= dict.fromkeys(machine.ranks, server)
    workers = sum(len(machine.ranks) for machine in asked.machines)
    if sorted(servers) != list(range(workers)):
        raise Problem(422, f"want each rank of 0 to {workers - 1} once", pointer="/machines")
    for key in _FIXED:
        if key in asked.job:
            raise Problem(
                422,
                f"{key}: must not be given; it follows from the machines, or the controller decides it",
                pointer=f"/job/{key}",
            )
    table = {
        **asked.job,
        "name": asked.name,
        "workers": workers,
        "servers": [servers[rank] for rank in range(workers)],
    }
    try:
        (job,) = jobs_of(documents.Document("request.json", {"job": [table]}), service.ledger.topology)
    except BadSpec as error:
        raise Problem(422, error.message, pointer=pointer(("job", *error.where[2:]))) from None
    return job
