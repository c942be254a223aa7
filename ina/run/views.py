"""The JSON objects in which the service describes jobs, decisions, servers and switches to its clients.

Times are seconds since the service was first started, as in `ina.run.records`; `ClusterView.began_at` is
the Unix time of that start.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired

from typing_extensions import TypedDict

from controller.core.reasons import Kind as Kind
from controller.core.reasons import LogEntry
from controller.vocabulary import Region
from ina.run.records import JobRecord


class LogLine(NamedTuple):
    """A line of the core's log of decisions, with its number."""

    number: int
    entry: LogEntry


class SlotsView(TypedDict):
    """Slots `first` to `first + slots - 1` of a switch."""

    first: int
    slots: int


class TreeView(TypedDict):
    """A job's aggregation tree: root, parent of each other switch, and the switches that aggregate."""

    root: str
    parents: dict[str, str]
    aggregators: list[str]


class JobView(TypedDict):
    """A job and its state; see `JobRecord` for the meaning of most keys.

    `name` is the name that the owner gave the job, and `id` the job's unique name in the service. `due_s` is
    the deadline and `ends_s` the estimated end, both on the service's clock. `external` is whether another
    launcher starts the job's workers.
    """

    name: str
    id: str
    number: int
    tenant: str
    state: str
    reason: str
    over: bool
    late: bool
    command: list[str]
    external: bool
    workers: int
    gpus: int
    model_bytes: int
    iterations: int
    done: float
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    deadline_s: float | None
    due_s: float | None
    left_s: float | None
    ends_s: float | None
    fallback_share: float | None
    starts: int
    run: int | None
    engine: str
    servers: list[str]
    fallback: str | None
    tree: TreeView | None
    slots: dict[str, SlotsView]
    standing: str | None


class JobsView(TypedDict):
    """A page of jobs, in order of submission.

    `next` is the value of the parameter `after` that requests the next page; None: this is the last page.
    """

    now_s: float
    jobs: list[JobView]
    next: int | None


class DecisionView(TypedDict):
    """A line of the log of decisions; `numbers` are the values on which the decision is based."""

    number: int
    at_s: float
    event: str
    jobs: list[str]
    text: str
    numbers: dict[str, float | None]


class DecisionsView(TypedDict):
    """A page of lines of the log of decisions.

    `next` is the value of the parameter `after` that requests the next page; None: this is the last page.
    """

    now_s: float
    events: list[DecisionView]
    next: int | None


class ExplanationView(TypedDict):
    """An explanation of a job's state.

    `decisions` has the decisions about the job, oldest first. `advice` says what the job waits for or lacks.
    """

    now_s: float
    job: JobView
    decisions: list[DecisionView]
    advice: list[str]


class ServerView(TypedDict):
    """A server. `used` is the number of its GPUs in use.

    `down` is why no job may start on the server, or "" if jobs may. It begins with "drained" if a user has
    drained the server.
    """

    name: str
    role: str
    gpus: int
    used: int
    jobs: list[str]
    down: str


class ShareView(SlotsView):
    """A job's slots at a switch; `job` is "" if the author of the request may not see the job."""

    job: str
    standing: str | None


class SwitchView(TypedDict):
    """A switch. `free` is the number of slots that no job holds; `down` is why no job may use the switch."""

    name: str
    address: str
    slots: int
    free: int
    shares: list[ShareView]
    down: str


class LinkView(TypedDict):
    """A link between the nodes `a` and `b`."""

    a: str
    b: str
    rate_bps: float


class ClusterView(TypedDict):
    """The cluster and its use. `jobs` has, by state, the number of jobs that the client may see."""

    now_s: float
    began_at: float
    operates: bool
    name: str
    root: str
    policies: dict[str, str]
    jobs: dict[str, int]
    servers: list[ServerView]
    switches: list[SwitchView]
    links: list[LinkView]


class MomentView(TypedDict):
    """The jobs that held slots of a switch from the time `at_s` until the time of the next `MomentView`."""

    at_s: float
    shares: list[ShareView]


class MemoryView(TypedDict):
    """Which jobs have held which slots of each switch since the time `since_s`.

    `slots` has the number of slots of each switch. `switches` has, by switch, each change of the division of
    the switch's slots among jobs.
    """

    now_s: float
    since_s: float
    slots: dict[str, int]
    switches: dict[str, list[MomentView]]


class ReallocatedView(TypedDict):
    """A job's slots at each switch before and after the switches' slots were divided again.

    `why` is the reason for the new slots.
    """

    job: str
    standing: str
    changed: bool
    before: dict[str, SlotsView]
    after: dict[str, SlotsView]
    why: str


class ReallocationView(TypedDict):
    """The result of a new division of the switches' slots: the slots of each job that uses switches."""

    at_s: float
    jobs: list[ReallocatedView]


class ReloadView(TypedDict):
    """The result of a reload: the changes of the cluster, one sentence each, and the policies by kind."""

    cluster: list[str]
    policies: dict[str, str]


class QuotaView(TypedDict):
    """A tenant's quota, and how much of it is in use.

    `gpus` is the maximum number of GPUs that the tenant's jobs may use at once (null: no limit), `reserved`
    the number of GPUs that are kept free for its jobs, and `used` the number in use. `per_minute` is the
    maximum number of jobs that the tenant may submit in a minute (null: no limit). `waiting` has the ids of
    the jobs that wait for the quota.
    """

    tenant: str
    gpus: int | None
    reserved: int
    per_minute: int | None
    used: int
    waiting: list[str]


class QuotasView(TypedDict):
    """The quotas that the author of the request may see."""

    quotas: list[QuotaView]


class AdmissionView(TypedDict):
    """The state of an external job (`ina.run.external`), for the job's holder.

    The job's lease ends `lease_s` seconds after the holder's last request. `stop` is why the workers must
    end, or "" if they may continue.
    """

    name: str
    state: str
    reason: str
    over: bool
    lease_s: float
    stop: str
    job: JobView


class JobGrant(TypedDict):
    """The settings that the workers of an admitted external job need.

    Attributes:
        switches: The job's entries on each switch of its tree, as plain data. The key "" has the worker on
            the fallback server's machine, if there is one.
        crosses: Whether the job's packets cross switches; False if all workers are on one server.
        lanes: Number of values in a packet.
        salted: Whether packets have a salt (see `controller.switches.model.SwitchInfo`).
        lacks: By feature that the switches' program lacks, the missing part; a controller of an earlier
            version does not pass it on.
        paced: Whether the workers' time-outs must follow the pace of results, because switches or links are
            slow.
        address: The HOST:PORT to which workers send packets.
    """

    switches: dict[str, Any]
    crosses: bool
    lanes: int
    salted: bool
    lacks: NotRequired[dict[str, str]]
    paced: bool
    address: str


class DifferenceView(TypedDict):
    """A difference between the expected and the actual state of a switch or a server."""

    where: str
    what: str


class AuditView(TypedDict):
    """The differences between the desired and the actual state.

    `left_out` has, by switch that could not be read, the reason.
    """

    at_s: float
    clean: bool
    found: list[DifferenceView]
    left_out: dict[str, str]


class LogView(TypedDict):
    """A piece of a rank's output: the bytes `offset` to `next` - 1. The whole output has `size` bytes now."""

    offset: int
    next: int
    size: int
    text: str


def of_job(record: JobRecord, now_s: float) -> JobView:
    """Convert a job's record to JSON. The job's estimated end is `now_s` plus its estimated time left."""
    job, place = record.job, record.place
    tree = place.tree if place else None
    left_s = _finite(record.left_s)
    return {
        "name": record.called,
        "id": job.name,
        "number": record.number,
        "tenant": record.tenant,
        "state": record.state,
        "reason": record.reason,
        "over": record.over,
        "late": record.late,
        "command": list(job.command or ()),
        "external": job.command is None,
        "workers": job.workers,
        "gpus": job.gpus,
        "model_bytes": job.model_bytes,
        "iterations": job.iterations,
        "done": record.done,
        "submitted_s": job.arrival_s,
        "started_s": record.started_s,
        "ended_s": record.ended_s,
        "deadline_s": job.deadline_s,
        "due_s": job.due_s,
        "left_s": left_s,
        "ends_s": None if left_s is None or record.over else now_s + left_s,
        "fallback_share": record.fallback_share,
        "starts": record.starts,
        "run": record.run,
        "engine": record.engine,
        "servers": list(place.servers) if place else [],
        "fallback": place.fallback if place else None,
        "tree": None
        if tree is None
        else {"root": tree.root, "parents": dict(tree.parents), "aggregators": sorted(tree.aggregators)},
        "slots": slots_of(place.regions if place else {}),
        "standing": place.standing.value if place and place.standing else None,
    }


def of_decision(decision: LogLine) -> DecisionView:
    """Convert a line of the log of decisions to JSON."""
    entry = decision.entry
    return {
        "number": decision.number,
        "at_s": entry.at_s,
        "event": entry.event,
        "jobs": list(entry.jobs),
        "text": entry.text,
        "numbers": {name: _finite(value) for name, value in entry.numbers.items()},
    }


def covered(shares: Sequence[ShareView]) -> int:
    """Return the number of a switch's slots that jobs hold; a slot that several jobs share counts once.

    >>> covered([{"job": job, "first": 0, "slots": 8, "standing": None} for job in ("a", "b")])
    8
    """
    found = reached = 0
    for first, end in sorted((share["first"], share["first"] + share["slots"]) for share in shares):
        found += max(0, end - max(first, reached))
        reached = max(reached, end)
    return found


def slots_of(regions: Mapping[str, Region]) -> dict[str, SlotsView]:
    """Convert a job's slots at each switch to JSON."""
    return {
        switch: {"first": region.offset, "slots": region.size} for switch, region in sorted(regions.items())
    }


def of_admission(record: JobRecord, stop: str, lease_s: float, now_s: float) -> AdmissionView:
    """Convert the state of an external job to JSON, for the job's holder.

    Args:
        record: The job's record.
        stop: Why the workers must end; "": they may continue.
        lease_s: Time, in s, within which the holder must send the next request.
        now_s: The current time, in seconds since the service was first started.
    """
    return {
        "name": record.called,
        "state": record.state,
        "reason": record.reason,
        "over": record.over,
        "lease_s": lease_s,
        "stop": stop,
        "job": of_job(record, now_s),
    }


def hiding(view: ClusterView, own: Collection[str]) -> ClusterView:
    """Return the cluster without the names of jobs that are not in `own`."""
    servers: list[ServerView] = [
        {**server, "jobs": [name for name in server["jobs"] if name in own]} for server in view["servers"]
    ]
    switches: list[SwitchView] = [
        {**switch, "shares": hidden(switch["shares"], own)} for switch in view["switches"]
    ]
    return {**view, "servers": servers, "switches": switches}


def hidden(shares: Sequence[ShareView], own: Collection[str]) -> list[ShareView]:
    """Return these shares without the names of jobs that are not in `own`."""
    return [{**share, "job": share["job"] if share["job"] in own else ""} for share in shares]


def _finite(value: float | None) -> float | None:
    """Return `value`, or None if it is infinite or NaN: JSON has no such numbers."""
    return value if value is not None and math.isfinite(value) else None


Reload = Callable[[], Awaitable[ReloadView]]
"""Function that reads a service's cluster file and policies file again, and returns the result. It raises
Conflict for a wrong file, and StoreError."""
