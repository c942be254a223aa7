"""What the service offers to those who speak for people: the interface between ``api`` and ``daemon``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from typing_extensions import TypedDict

from controller.core import Entry
from controller.core.reasons import Kind as Kind
from controller.policies.memory.regions import Standing
from controller.vocabulary import Job, Region, Topology
from ina.service.policies import Policies
from ina.service.quotas import Quota, QuotaState
from ina.service.records import Audit, JobRecord, Said


class LogLine(NamedTuple):
    """A line of the core's log, by number."""

    number: int
    entry: Entry


class Share(NamedTuple):
    """A job's slots at a switch."""

    job: str
    region: Region
    standing: Standing | None


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server as it is: `down` says why nothing starts there; "": it can be used."""

    name: str
    gpus: int
    used: int
    jobs: tuple[str, ...] = ()
    down: str = ""


@dataclass(frozen=True, slots=True)
class SwitchState:
    """A switch as it is: `down` says why it is not used; "": it is up."""

    name: str
    address: str
    slots: int
    shares: tuple[Share, ...] = ()
    down: str = ""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster as it is."""

    topology: Topology
    policies: Mapping[str, str]
    """The names of scheduler, placement, routing and memory policy."""
    servers: tuple[ServerState, ...]
    switches: tuple[SwitchState, ...]
    cut: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why links are down that are, by their ends as in `topology`."""


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """Why a job stands as it does: what was decided of it, oldest first, and what it would take."""

    record: JobRecord
    decisions: tuple[LogLine, ...] = ()
    advice: tuple[str, ...] = field(default_factory=tuple)
    """What it waits for, or what slows it, and what it would take to be faster, with numbers."""


class JobGrant(TypedDict):
    """What the workers of a job that somebody else has started have to know, once its switches serve it.

    Attributes:
        switches: What each switch of its tree holds of it, as plain data (`ina.service.plain`).
        crosses: Whether it uses switches: its workers are not all on one server.
        lanes: Values of a packet.
        salted: Packets have a salt (`controller.switches.model.SwitchInfo`).
        paced: Workers have to pace their packets.
        address: Where workers send packets, HOST:PORT.
    """

    switches: dict[str, Any]
    crosses: bool
    lanes: int
    salted: bool
    paced: bool
    address: str


@dataclass(frozen=True, slots=True)
class SlotsChange:
    """The slots of a job before and after a division of memory, by switch, and why it has them."""

    job: str
    standing: Standing
    before: Mapping[str, Region]
    after: Mapping[str, Region]
    why: str

    @property
    def changed(self) -> bool:
        """Whether it has other slots than before."""
        return dict(self.before) != dict(self.after)


class Reloaded(NamedTuple):
    """What a reload of files came to: what differs in the cluster, one sentence each; the policies' names."""

    cluster: tuple[str, ...]
    policies: Mapping[str, str]


Reload = Callable[[], Awaitable[Reloaded]]
"""Reads a service's files again. Raises Conflict for one that is wrong; StoreError."""


class Service(Protocol):
    """A running service. All of it is called in the thread of its event loop; jobs are named by their ids.

    Raises `ina.service.errors`: Unknown for names that are not there, Conflict for what contradicts what is
    there, StoreError where nothing can be written; and BadSpec (`controller.vocabulary`).
    """

    @property
    def now_s(self) -> float:
        """Seconds since the service's first start."""

    @property
    def began_at(self) -> float:
        """When that was, as Unix time."""

    @property
    def changes(self) -> Hashable:
        """Equal to an earlier value as long as nothing was decided since, and no run began or ended."""

    @property
    def ready(self) -> str:
        """Why it does not serve yet; "": it does."""

    @property
    def trouble(self) -> str:
        """Why nothing can be written down; "": it can, as far as is known."""

    async def submit(self, jobs: Sequence[Job], *, tenant: str = "", key: str = "") -> list[JobRecord]:
        """Take jobs in, all or none. The same `key` of the same tenant again gives the same jobs."""

    async def cancel(self, name: str, *, by: str = "") -> JobRecord:
        """End a job, whether it runs or waits."""

    async def retry(self, name: str) -> JobRecord:
        """Have a job that failed run again, from where it last saved."""

    def machine(self, known_as: Sequence[str]) -> str:
        """Return the server that is known by one of these names and addresses. Raises BadSpec."""

    async def admit(self, job: Job, *, holder: str, tenant: str = "", key: str = "") -> JobRecord:
        """Take in a job whose workers somebody else starts, on the servers that it names.

        Args:
            job: The job.
            holder: SHA-256 of the token of who holds it.
            tenant: Whose it is.
            key: The same one again gives the same job.
        """

    async def renew(self, name: str, done: int | None = None) -> str:
        """Begin the lease of such a job again; return why its workers have to end, "": they need not.

        `done` are its iterations in this run, if they are known.
        """

    def grant(self, name: str) -> JobGrant:
        """Return the grant of such a job. Raises Conflict as long as no switch serves it."""

    async def leave(self, name: str, failure: str = "") -> str:
        """Note that its workers have ended, with a failure or well; return as `renew`."""

    async def drain(self, name: str, *, back: bool = False, by: str = "") -> None:
        """Have a server or switch be used by nobody; `back`: have it be used again."""

    async def reallocate(self, name: str = "", *, by: str = "") -> list[SlotsChange]:
        """Divide memory now; return the jobs that use it, or this one alone, and what each has got.

        Jobs move to their slots then. Raises Conflict for a job that uses no switch memory.
        """

    def quotas(self) -> Sequence[QuotaState]:
        """Return the tenants that have quotas, and how far these are used."""

    async def set_quota(self, quota: Quota) -> None:
        """Have a tenant use so much at most, and so much be kept for it. What runs runs on."""

    async def remove_quota(self, tenant: str) -> None:
        """Have a tenant use as much as all."""

    async def reload(self, policies: Policies) -> None:
        """Have other policies decide from now on; what runs runs on until they decide otherwise.

        Raises Conflict if they cannot follow those that decide now.
        """

    async def change_cluster(self, cluster: Topology) -> Sequence[str]:
        """Have another cluster from now on; return what differs, one sentence each.

        Raises Conflict if it cannot follow that of now; nothing has changed then.
        """

    async def audit(self) -> Audit:
        """Compare what is intended with what switches and servers hold."""

    def records(self) -> list[JobRecord]:
        """Return all jobs, in order of submission."""

    def record(self, name: str) -> JobRecord:
        """Return a job by its id, as all that follows."""

    def named(self, reference: str) -> Sequence[Said]:
        """Return the jobs that have this name, id or number, whoever's they are, oldest first."""

    def archived(self, reference: str) -> Sequence[Mapping[str, Any]]:
        """Return the same of jobs that are over and forgotten, as `views.JobView`, the latest first."""

    def explain(self, name: str) -> JobExplanation:
        """Say why a job stands as it does."""

    @property
    def topology(self) -> Topology:
        """The switches, servers and links."""

    def cluster(self) -> ClusterState:
        """Return the cluster as it is."""

    def decisions(self, after: int = 0) -> Sequence[LogLine]:
        """Return the lines of the log later than number `after`."""

    def counted(self) -> Mapping[str, int]:
        """Return how many lines the log has had, by event, also those that are not kept."""

    def watch(self, after: int = 0) -> AsyncIterator[LogLine]:
        """Yield the lines of the log later than number `after`, and all to come."""

    def log(self, name: str, rank: int) -> Path:
        """Return the file with what a rank of a job has written."""
