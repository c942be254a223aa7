"""What the daemon (`daemon.Daemon`) tells those who ask: states, explanations, and what a request came to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from typing_extensions import TypedDict

from controller.core import Entry
from controller.core.reasons import Kind as Kind
from controller.policies.memory.regions import Standing
from controller.vocabulary import Region, Topology
from ina.service.records import JobRecord


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
        switches: What each switch of its tree holds of it, as plain data; "": the worker beside its server.
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
