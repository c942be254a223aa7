"""Faults of jobs on a network, as data: for scenarios, experiments, the virtual testbed and the soak.

==================  ===========================================  =========================================
fault               what happens                                 supported by
==================  ===========================================  =========================================
`LinkFault`         a link loses packets, or is slower           all; during the run: virtual testbed, soak
`Kill`              a worker dies                                testbeds with processes
`RestartJob`        all workers of a job start again             virtual testbed, soak
`RestartFallback`   a job's fallback server loses its state      virtual testbed, soak
`ChangeRegion`      a job gets other slots                       virtual testbed, soak
`Straggle`          a rank computes longer                       virtual testbed
`RemoveJob`         a job is removed                             virtual testbed
`Congest`           a switch marks all departing packets (ECN)   soak
`Strangers`         a switch receives frames that it must drop   soak
==================  ===========================================  =========================================

A runner that does not support a fault raises an error that names the fault, before anything starts. Times
count from the start of the run. Mishaps of a controller and of processes: `benchmarks.service.mishaps`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace

from controller.vocabulary import Link, Region, Topology, documents
from controller.vocabulary.documents import Document, Where
from controller.vocabulary.schema import LINK

LINK_KINDS = ("loss", "duplicate", "reorder", "delay_s", "rate_bps")
"""Properties of a link that a fault may change."""


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A change of one property (`kind`, a field of `Link`) of the link between two nodes.

    A fault that lasts for the whole run (`lasts`) replaces the link's own value by `value`. Any other fault
    must have the kind loss: `value` is added to the link's own loss from `at_s` on, for `for_s` seconds.
    """

    at_s: float
    link: tuple[str, str]
    kind: str
    value: float
    for_s: float = math.inf

    @property
    def lasts(self) -> bool:
        """True if the change lasts for the whole run."""
        return self.at_s == 0 and self.for_s == math.inf


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker dies at the beginning of an iteration, counted from 0."""

    job: str
    rank: int
    iteration: int


@dataclass(frozen=True, slots=True)
class RestartJob:
    """All workers of a job start again, from the last iteration that all of them have finished.

    The job is admitted again under the same id, with another epoch; packets of its old epoch stay in slots,
    queues and the fallback server. If `removed_at_once` is True, the job is removed from the switches when
    its workers stop; if it is False, the switches keep serving the stopped job until its restart.
    """

    at_s: float
    job: str
    down_s: float = 0.0
    removed_at_once: bool = True


@dataclass(frozen=True, slots=True)
class RestartFallback:
    """A job's fallback server loses all state of packets, and receives nothing for `down_s` seconds."""

    at_s: float
    job: str
    down_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ChangeRegion:
    """A job with shared slots gets other slots at `switch`.

    If `switch` is "", the job gets other slots at all switches of its tree.
    """

    at_s: float
    job: str
    offset: int
    size: int
    switch: str = ""

    @property
    def region(self) -> Region:
        """The job's new slots."""
        return Region(self.offset, self.size)


@dataclass(frozen=True, slots=True)
class Straggle:
    """A rank's computing time per iteration is `compute_s` from `at_s` on."""

    at_s: float
    job: str
    rank: int
    compute_s: float


@dataclass(frozen=True, slots=True)
class RemoveJob:
    """A job is removed, whatever its state; a job that has not arrived yet never starts."""

    at_s: float
    job: str


@dataclass(frozen=True, slots=True)
class Congest:
    """A switch marks every departing packet with ECN, for `for_s` seconds."""

    at_s: float
    switch: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Strangers:
    """A switch receives forged frames, which it must drop; see `soak.network.forge`."""

    at_s: float
    switch: str
    kinds: tuple[str, ...]


TimedFault = (
    LinkFault | RestartJob | RestartFallback | ChangeRegion | Straggle | RemoveJob | Congest | Strangers
)
Fault = TimedFault | Kill


def with_link_faults(topology: Topology, faults: Iterable[Fault]) -> Topology:
    """Return the topology with its links changed by the faults that last for the whole run."""
    lasting = [fault for fault in faults if isinstance(fault, LinkFault) and fault.lasts]

    def changed(link: Link) -> Link:
        found = {fault.kind: fault.value for fault in lasting if {*fault.link} == {link.a, link.b}}
        return replace(link, **found)  # type: ignore[arg-type]

    return replace(topology, links=tuple(map(changed, topology.links)))


def impossible(fault: Fault, topology: Topology, workers: Mapping[str, int]) -> tuple[str, str] | None:
    """Return the key whose value makes `fault` impossible, and the reason; None if `fault` is possible.

    The key is a key of the fault's table in a scenario file, such as "link".

    Args:
        fault: The fault.
        topology: The network.
        workers: Number of ranks of each job, by the job's name.
    """
    match fault:
        case LinkFault(link=ends):
            if not any({*ends} == {link.a, link.b} for link in topology.links):
                return "link", f"fault: link = {[*ends]}: there is no such link"
        case Congest() | Strangers():
            pass
        case _:
            if fault.job not in workers:
                return "job", f"unknown job {fault.job!r}; {documents.hint(fault.job, workers)}"
            if isinstance(fault, Kill | Straggle) and fault.rank >= workers[fault.job]:
                last = workers[fault.job] - 1
                return "rank", f"fault: rank = {fault.rank}: the job has ranks 0 to {last}"
            if isinstance(fault, ChangeRegion) and fault.switch not in ("", *topology.switch):
                known = documents.hint(fault.switch, topology.switch)
                return "switch", f"unknown switch {fault.switch!r}; {known}"
    return None


# ---------------------------------------------------------------------- files

_KINDS: Mapping[str, type[Fault]] = {
    **dict.fromkeys(LINK_KINDS, LinkFault),
    "kill": Kill,
    "restart-job": RestartJob,
    "restart-fallback": RestartFallback,
    "region": ChangeRegion,
    "straggle": Straggle,
    "remove-job": RemoveJob,
}
"""Class of every fault that scenario files can contain, by the fault's ``kind`` in the file. Each of these
faults is supported by at least one runner of scenarios."""
_SECONDS = documents.number(0, 3600, "seconds")
_KEYS: Mapping[str, documents.Check] = {
    "kind": documents.one_of(_KINDS),
    "at_s": _SECONDS,
    "for_s": _SECONDS,
    "down_s": _SECONDS,
    "link": documents.listing(documents.name, least=2, most=2),
    "value": documents.number(0, 1e12),
    "job": documents.name,
    "rank": documents.whole(0, 1023),
    "iteration": documents.whole(0, 1 << 31),
    "compute_s": _SECONDS,
    "offset": documents.whole(0, 1 << 31),
    "size": documents.whole(0, 1 << 31),
    "switch": documents.name,
    "removed_at_once": documents.flag,
}


def read_fault(document: Document, where: Where, topology: Topology, workers: Mapping[str, int]) -> Fault:
    """Return the fault that a table of a file describes: a ``kind``, and the fields of the fault's class.

    For a fault of a link, ``kind`` is the property that changes, and ``link = [A, B]`` names the link's ends.

    Args:
        document: The file.
        where: Keys and indices that lead to the table in the file.
        topology: The network.
        workers: Number of ranks of each job, by the job's name.

    Raises BadSpec, which names the line and the key.
    """
    found = dict(document.check(where, _KEYS, what="fault", require=("kind",)))
    kind = found["kind"]
    takes = {field.name: field.default for field in fields(_KINDS[kind])} | {"kind": ""}
    if "at_s" in takes:
        takes["at_s"] = 0.0  # from the start by default
    needed = [name for name, default in takes.items() if default is MISSING]
    document.check(where, _KEYS, what="fault", require=needed)
    if wrong := next((key for key in found if key not in takes), None):
        raise document.error((*where, wrong), f"fault: {wrong} does not go with kind = {kind!r}")
    if kind in LINK_KINDS:
        if wanted := LINK[kind].check(found["value"]):
            raise document.error((*where, "value"), f"fault: value = {found['value']}: {wanted}")
        found |= {"link": tuple(found["link"]), "value": float(found["value"])}
    else:
        del found["kind"]
    fault: Fault = _KINDS[kind](**({"at_s": 0.0} if "at_s" in takes else {}) | found)
    if why := impossible(fault, topology, workers):
        raise document.error((*where, why[0]), why[1])
    return fault
