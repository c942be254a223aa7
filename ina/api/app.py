"""The service over HTTP: its resources under ``/v1``, the operator's page at ``/``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Container
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from starlette.responses import FileResponse, Response

from controller.vocabulary import BadSpec, Job, Topology, documents, jobs_of
from ina.api import admissions, metrics
from ina.api.access import (
    BEARER,
    MAX_PAGE,
    After,
    Asker,
    Follow,
    Gate,
    Json,
    Last,
    Limit,
    Operator,
    Own,
    Serving,
    Tenant,
    Tenants,
    Wanted,
    as_user,
    gone,
    own,
)
from ina.api.guard import Guard
from ina.api.history import History, Shared
from ina.api.problems import MAX_JOBS, STREAM, SUBMISSION, TEXT, Problem, refusals, register
from ina.api.streams import EventStream, Streams, event, following, piece
from ina.errors import Unknown
from ina.run import views
from ina.run.daemon import Daemon
from ina.run.quotas import Quota
from ina.run.records import State
from ina.run.tokens import Person
from ina.run.views import Kind, LogLine, Reload

SMALL_BYTES = 1 << 14
"""Maximum size, in bytes, of request bodies that are parsed in the event loop; larger ones need a thread."""
PAGE = Path(__file__).parent.parent / "page"
_log = logging.getLogger(__name__)


def app(
    service: Daemon, *, gate: Gate, hosts: Collection[str] | None, reload: Reload | None = None
) -> FastAPI:
    """Return the application that answers requests.

    Args:
        service: The service.
        gate: Finds the author of each request, and checks the author's rights.
        hosts: Allowed names in the Host header (`guard.LOOPBACK`); None: any.
        reload: Reads the cluster file and the policies file again; None: the service has neither.
    """
    history = History(service)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(history.follow())
        following.add_done_callback(_complain)
        yield
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    application = FastAPI(
        title="ina controller",
        summary="Jobs whose gradients are summed inside switches.",
        version=version("ina"),
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its page loads scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # "/v1/quotas/" lacks a tenant, and is not "/v1/quotas"
        lifespan=lifespan,
    )
    application.state.routes = [*_open.routes, *_v1.routes, *admissions.router.routes]
    application.state.service = service
    application.state.gate = gate
    application.state.reload = reload
    application.state.history = history
    application.state.streams = Streams()
    application.state.shared = Shared(service)
    application.state.answers = Counter()
    register(application)
    application.add_middleware(Guard, hosts=hosts, answers=application.state.answers)
    application.include_router(_open)
    application.include_router(_v1)
    application.include_router(admissions.router)
    return application


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("the service no longer records which jobs hold which slots: %s", error, exc_info=error)


_v1 = APIRouter(prefix="/v1", dependencies=[Depends(BEARER)], responses=refusals())
_open = APIRouter(responses=refusals())

# --------------------------------------------------------------------------- jobs


@_v1.post(
    "/jobs",
    status_code=201,
    response_model=views.JobsView,
    responses=refusals(415, 429),
    openapi_extra=dict(SUBMISSION),
)
async def submit(
    request: Request,
    service: Serving,
    person: Asker,
    idempotency_key: Annotated[
        str,
        Header(
            alias="Idempotency-Key",
            max_length=200,
            description="A request that repeats an earlier key adds no jobs, and returns the earlier ones.",
        ),
    ] = "",
) -> Response:
    """Submit jobs: either all are accepted or none.

    Each job has the keys of a `[[job]]` table of job files (docs/reference/files.md).
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, f"Content-Type is {kind[:80]!r}; want application/json")
    body = await request.body()
    if len(body) > SMALL_BYTES:
        jobs = await asyncio.to_thread(_jobs, body, service.ledger.topology)
    else:
        jobs = _jobs(body, service.ledger.topology)
    records = await service.submit(as_user(jobs, person), tenant=person.name, key=idempotency_key)
    now_s = service.ledger.now_s
    found = [views.of_job(record, now_s) for record in records]
    return Json({"now_s": now_s, "jobs": found, "next": None}, 201)


@_v1.get("/jobs", response_model=views.JobsView)
async def jobs(
    request: Request,
    service: Serving,
    person: Asker,
    state: Annotated[list[State] | None, Query(description="Only jobs in this state. Repeatable.")] = None,
    tenant: Annotated[str | None, Query(description="Only this tenant's jobs.")] = None,
    after: After = 0,
    limit: Limit = MAX_PAGE,
) -> Response:
    """List jobs, in order of submission."""

    def make() -> object:
        records = service.reports.records()
        begin = after
        if begin < 0:
            begin += records[-1].number if records else 0
        wanted = [
            record
            for record in records
            if person.owns(record.tenant)
            and record.number > begin
            and (not state or record.state in state)
            and tenant in (None, record.tenant)
        ]
        now_s, page = service.ledger.now_s, wanted[:limit]
        following = page[-1].number if len(wanted) > limit else None
        return {"now_s": now_s, "jobs": [views.of_job(each, now_s) for each in page], "next": following}

    shared: Shared = request.app.state.shared
    return shared.answer(request, person, make)


@_v1.get("/jobs/{name}", response_model=views.JobView)
async def job(name: str, service: Serving, person: Asker, tenant: Tenants = None) -> Response:
    """Return a job, even if it is over and no longer listed.

    In each request about a job, `name` is the job's id, number or name; a name means the newest job of that
    name.
    """
    try:
        return Json(views.of_job(own(service, person, name, tenant), service.ledger.now_s))
    except Unknown:
        return Json(gone(service, person, name, tenant))


@_v1.delete("/jobs/{name}", response_model=views.JobView)
async def cancel(record: Own, service: Serving, person: Asker) -> Response:
    """End a job, whether it runs or waits."""
    return Json(views.of_job(await service.cancel(record.name, by=person.name), service.ledger.now_s))


@_v1.post("/jobs/{name}/retry", response_model=views.JobView)
async def retry(record: Own, service: Serving) -> Response:
    """Run a failed job again, from its last checkpoint."""
    return Json(views.of_job(await service.retry(record.name), service.ledger.now_s))


@_v1.get("/jobs/{name}/explanation", response_model=views.ExplanationView)
async def explanation(record: Own, service: Serving) -> Response:
    """Explain the state of a job, and the conditions under which it would run faster."""
    return Json(service.reports.explain(record.name))


@_v1.get("/jobs/{name}/logs/{rank}", response_model=views.LogView, responses=STREAM)
async def logs(
    record: Own,
    rank: int,
    request: Request,
    service: Serving,
    offset: Annotated[
        int,
        Query(
            ge=-(1 << 53),
            le=1 << 53,
            description="Begin at this byte; a negative number counts from the end.",
        ),
    ] = 0,
    follow: Follow = False,
    last: Last = None,
) -> Response:
    """Return the output of a rank of a job."""
    path = service.log(record.name, rank)
    if not follow:
        return Json(piece(path, offset))
    begin = offset if last is None else last
    begin = piece(path, begin, most=1)["offset"] if begin < 0 else begin
    streams: Streams = request.app.state.streams
    return EventStream(following(path, begin, lambda: service.reports.record(record.name).over), streams)


def _jobs(body: bytes, cluster: Topology) -> list[Job]:
    """Return the jobs that a request describes.

    Raises Problem and BadSpec, with the path of the wrong value.
    """
    try:
        document = documents.parse(body.decode("utf-8"), "request.json")
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except BadSpec as error:
        raise Problem(400, error.message.removeprefix("request.json:").lstrip()) from None
    found = document.data.get("jobs")
    if not isinstance(found, list) or not found:
        raise Problem(
            422, 'want {"jobs": [...]} with at least one job', pointer="/jobs" if found is not None else ""
        )
    if unknown := document.data.keys() - {"jobs"}:
        raise Problem(
            422, f"unknown key {documents.quoted(min(unknown))}; want no other key than jobs", pointer=""
        )
    if len(found) > MAX_JOBS:
        raise Problem(422, f"{len(found)} jobs in one request; want at most {MAX_JOBS}", pointer="/jobs")
    for number, each in enumerate(found):
        if not isinstance(each, dict):
            raise Problem(
                422, f"want a table of keys, not {documents.shown(each)}", pointer=f"/jobs/{number}"
            )
        name = each.get("name")
        if isinstance(name, str) and (re.search(r"/|#\d+$", name) or name in (".", "..")):
            raise Problem(
                422,
                f"name = {documents.shown(name)}: want a name other than '.' and '..', without '/', and"
                " without '#' and a number at its end",
                pointer=f"/jobs/{number}/name",
            )
    described = documents.Document("request.json", {"job": found})
    return list(jobs_of(described, cluster, require=("name", "command")))


# --------------------------------------------------------------------------- the cluster


@_v1.get("/cluster", response_model=views.ClusterView)
async def cluster(request: Request, service: Serving, person: Asker) -> Response:
    """Return servers, switches, links, and the jobs that use them."""

    def make() -> object:
        records = [each for each in service.reports.records() if person.owns(each.tenant)]
        view = service.reports.cluster(records, operates=person.operates)
        return view if person.operates else views.hiding(view, {each.name for each in records})

    shared: Shared = request.app.state.shared
    return shared.answer(request, person, make)


@_v1.get("/memory", response_model=views.MemoryView)
async def memory(request: Request, service: Serving, person: Asker) -> Response:
    """Return which jobs have held which slots of each switch, and when, since the service's last start."""
    history: History = request.app.state.history
    return Json(history.view(person))


@_v1.post("/nodes/{name}/drain", status_code=204)
async def drain(name: str, service: Serving, person: Operator) -> Response:
    """Drain a server or a switch: jobs that use it move elsewhere, or wait."""
    await service.drain(name, by=person.name)
    return Response(status_code=204)


@_v1.post("/nodes/{name}/undrain", status_code=204)
async def undrain(name: str, service: Serving, person: Operator) -> Response:
    """End the drain of a server or a switch."""
    await service.drain(name, back=True, by=person.name)
    return Response(status_code=204)


@_v1.post("/reallocation", response_model=views.ReallocationView)
async def reallocate(
    service: Serving,
    person: Operator,
    job: Annotated[str, Query(description="Return only this job; memory is divided among all jobs.")] = "",
) -> Response:
    """Divide the slots of the switches among jobs now; return the slots of each job, and the reason."""
    found = await service.reallocate(own(service, person, job).name if job else "", by=person.name)
    return Json({"at_s": service.ledger.now_s, "jobs": found})


@_v1.post("/reload", response_model=views.ReloadView)
async def reload(request: Request, _: Operator) -> Response:
    """Read the cluster file and the policies file again; if a file is wrong, change nothing."""
    reading: Reload | None = request.app.state.reload
    if reading is None:
        raise Problem(
            409, "the controller was started with neither --cluster nor --policies: there is no file to read"
        )
    return Json(await reading())


@_v1.get("/audit", response_model=views.AuditView)
async def audit(service: Serving, person: Operator) -> Response:
    """Return the differences between the desired and the actual state of switches and servers."""
    return Json(await service.audit())


# --------------------------------------------------------------------------- quotas


@_v1.get("/quotas", response_model=views.QuotasView)
async def quotas(service: Serving, person: Asker) -> Response:
    """List the quotas, reservations and usage of all tenants; for a submitter, of the own tenant only."""
    states = service.ledger.quotas.states()
    return Json({"quotas": [each for each in states if person.owns(each["tenant"])]})


@_v1.get("/quotas/{tenant}", response_model=views.QuotaView)
async def quota(tenant: Tenant, service: Serving, person: Asker) -> Response:
    """Show a tenant's quota and reservation."""
    return Json(_quota(service, person, tenant))


@_v1.put("/quotas/{tenant}", response_model=views.QuotaView)
async def set_quota(tenant: Tenant, wanted: Wanted, service: Serving, person: Operator) -> Response:
    """Replace a tenant's quota and reservation; running jobs continue."""
    await service.set_quota(Quota(tenant, wanted.gpus, wanted.reserved, wanted.per_minute))
    return Json(_quota(service, person, tenant))


@_v1.delete("/quotas/{tenant}", status_code=204)
async def remove_quota(tenant: Tenant, service: Serving, _: Operator) -> Response:
    """Remove a tenant's quota and reservation."""
    await service.remove_quota(tenant)
    return Response(status_code=204)


def _quota(service: Daemon, person: Person, tenant: str) -> views.QuotaView:
    for each in service.ledger.quotas.states():
        if each["tenant"] == tenant and person.owns(tenant):
            return each
    raise Problem(404, f"tenant {tenant!r} has no quota")


# --------------------------------------------------------------------------- events


@_v1.get("/events", response_model=views.DecisionsView, responses=STREAM)
async def events(
    request: Request,
    service: Serving,
    person: Asker,
    after: After = 0,
    limit: Limit = MAX_PAGE,
    follow: Follow = False,
    last: Last = None,
    without: Annotated[
        list[Kind] | None, Query(description="Leave out events of this kind. Repeatable.")
    ] = None,
) -> Response:
    """Return events and decisions, oldest first."""
    left_out = frozenset(without or ())
    if after < 0:
        latest = (
            each.number - 1
            for each in reversed(service.reports.decisions())
            if each.entry.event not in left_out
        )
        after = min(islice(latest, -after), default=0)
    if follow:
        begin = after if last is None else last
        streams: Streams = request.app.state.streams
        return EventStream(_decisions(service, person, begin, left_out), streams)
    seen = [each for each in service.reports.decisions(after) if _may_see(service, person, each, left_out)]
    page = seen[:limit]
    following = page[-1].number if len(seen) > limit else None
    return Json(
        {
            "now_s": service.ledger.now_s,
            "events": [views.of_decision(each) for each in page],
            "next": following,
        }
    )


async def _decisions(
    service: Daemon, person: Person, after: int, left_out: Container[Kind]
) -> AsyncGenerator[bytes, None]:
    async for decision in service.watch(after):
        if _may_see(service, person, decision, left_out):
            yield event("decision", views.of_decision(decision), decision.number)


def _may_see(service: Daemon, person: Person, decision: LogLine, left_out: Container[Kind]) -> bool:
    """Return whether a decision is shown to a person.

    Operators see all decisions, submitters the decisions about their own tenant's jobs. Decisions whose kind
    is in `left_out` are not shown.
    """
    if decision.entry.event in left_out:
        return False
    if person.operates:
        return True
    for name in decision.entry.jobs:
        with contextlib.suppress(Unknown):
            if person.owns(service.reports.record(name).tenant):
                return True
    return False


# --------------------------------------------------------------------------- for monitors, and people


@_open.get("/metrics", response_class=Response, responses=TEXT, dependencies=[Depends(BEARER)])
async def figures(request: Request, _: Operator) -> Response:
    """Return metrics in the text format of Prometheus."""
    state = request.app.state
    text = metrics.render(state.service, streams=state.streams.open, answers=state.answers)
    return Response(text, media_type=metrics.CONTENT_TYPE)


@_open.get("/healthz")
async def healthz(request: Request) -> Response:
    """Return 200, or 503 while the service cannot write its state."""
    trouble: str = request.app.state.service.ledger.store.trouble
    return Json({"status": "its state cannot be written" if trouble else "ok"}, 503 if trouble else 200)


@_open.get("/readyz")
async def readyz(request: Request) -> Response:
    """Return 200 once the service is ready; 503 before, or while it cannot write its state."""
    service: Daemon = request.app.state.service
    why = service.ready or ("its state cannot be written" if service.ledger.store.trouble else "")
    return Json({"status": why or "ok"}, 503 if why else 200)


_FILES = frozenset(path.name for path in PAGE.iterdir() if path.suffix in (".js", ".css"))


@_open.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the operator's page, which uses ``/v1`` like any other client."""
    return FileResponse(PAGE / "index.html")


@_open.get("/page/{name}", include_in_schema=False)
async def part(name: str) -> Response:
    """Return a JavaScript module or a style sheet of the operator's page."""
    if name not in _FILES:
        raise Problem(404, f"the page has no part {name[:80]!r}")
    return FileResponse(PAGE / name)
