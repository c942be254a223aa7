"""A job's rows on a switch (table entries and a multicast group): made from an admission, and parsed back.

A job with all its rows is an `Admission`. Its row in the job table is written last and deleted first, so
that packets meet either the whole job or none of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from controller.switches import names
from controller.switches.model import (
    ALL_RANKS,
    Admission,
    Member,
    RegionChange,
    Registration,
    Uplink,
    ipv4_from_int,
    ipv4_to_int,
    mac_from_int,
    mac_to_int,
)
from controller.switches.target import Entry, Kind, MulticastGroup, TableEntry
from controller.vocabulary import Region, documents

# ---------------------------------------------------------------------------
# Registrations of jobs as metadata of the jobs' rows. No I/O.


@lru_cache(maxsize=4096)  # switches are compared with the same rows again and again
def encode_registration(registration: Registration | None) -> bytes:
    """Write a registration as metadata; None gives empty metadata, and fields with defaults are left out.

    >>> encode_registration(Registration("host pid 17", lease_s=60.0, renewals=3))
    b'{"ina_job": {"holder": "host pid 17", "lease_s": 60.0, "renewals": 3}}'
    """
    if registration is None:
        return b""
    return json.dumps({"ina_job": documents.non_default_fields(registration)}).encode()


def decode_registration(metadata: bytes) -> Registration | None:
    """Return the registration that any version of `encode_registration` wrote; None for other metadata.

    Earlier versions wrote when a lease ends by its holder's clock, which other processes cannot use: the
    length of such a lease is infinite here.

    >>> decode_registration(b"of another program")
    >>> decode_registration(b'{"ina_lease": {"until_ms": 1700000000000, "holder": "host pid 17"}}').lease_s
    inf
    """
    try:
        match json.loads(metadata):
            case {"ina_job": fields}:
                return msgspec.convert(fields, Registration)
            case {"ina_lease": {"until_ms": int(), "holder": str(holder)}}:
                return Registration(holder, lease_s=math.inf)
    except (ValueError, OverflowError, RecursionError):
        pass
    return None


Row = TableEntry | MulticastGroup
"""A row of a job on a switch: a table entry, or a multicast group."""

Key = int | tuple[str, tuple[tuple[str, object], ...], int]
"""Unique key of a row on its switch: a group's number, or an entry's table, match and priority."""

TABLES = (names.JOB, names.MEMBER, names.UPLINK, names.RECEIVER)
"""Tables with rows of jobs. In programs with shared slots, the table `names.CHANGE` also has rows of jobs."""


def key_of(row: Row) -> Key:
    """Return the key that identifies a row among its switch's rows."""
    if isinstance(row, MulticastGroup):
        return row.id
    return row.table, tuple(sorted(row.match.items())), row.priority


def job_row(admission: Admission) -> TableEntry:
    """Make the job's entry in the job table, which admits the job's packets."""
    return TableEntry(
        names.JOB,
        {names.JOB_KEY: admission.job},
        names.SET_JOB,
        {
            "counter_row": admission.counter_row,
            "offset": admission.region.offset,
            "size": admission.region.size,
            "generation": admission.generation,
            "fan_in": admission.fan_in,
            "full_bitmap": admission.full_bitmap,
            "group": admission.group,
            "node": admission.node,
            "result_bitmap": admission.result_bitmap,
            "root": int(admission.root),
            "transit": int(admission.transit),
            "preempt": int(admission.preempt),
            "ageing": admission.ageing,
            "window": admission.window,
            "max_age_us": admission.max_age_us,
        },
        metadata=encode_registration(admission.registration),
    )


def change_row(admission: Admission) -> TableEntry:
    """Make the row that moves the job to another region. Raises ValueError for a job that is not moving."""
    change = admission.change
    if change is None:
        raise ValueError(f"job {admission.job} is not moving to another region")
    return TableEntry(
        names.CHANGE,
        {names.JOB_KEY: admission.job},
        names.MOVE,
        {"number": change.number, "offset": change.region.offset, "size": change.region.size},
    )


def supporting_rows(admission: Admission) -> tuple[Row, ...]:
    """Make the job's rows in other tables than the job table, and its multicast group.

    The rows are: members by port, their addresses by bit, and the uplink. Raises BadJob for an invalid
    address; ValueError for a member or an uplink without a port.
    """
    rows: list[Row] = []
    replicas = []
    at_port: dict[int | None, int] = {}
    for member in admission.members:
        at_port[member.port] = at_port.get(member.port, 0) | member.bitmap
    if admission.uplink is not None:
        rows += _uplink_rows(admission, admission.uplink)
    for member in admission.members:
        if member.port is None:
            raise ValueError(f"{member} has no port yet")
        replica = member.bit + 1  # replica 0 is for the uplink
        below = {"first_node": member.below.start, "node_count": len(member.below)}
        if bitmap := at_port.pop(member.port, 0):  # one row for all workers that share a port
            of_port = {"bitmap": bitmap, **below}
            rows.append(_port_row(admission.job, member.port, names.SET_MEMBER, of_port))
        rows.append(_receiver_row(admission.job, replica, member))
        replicas.append((member.port, replica))
    return (*rows, MulticastGroup(admission.group, tuple(replicas)))


def _uplink_rows(admission: Admission, uplink: Uplink) -> list[Row]:
    if uplink.port is None:
        raise ValueError("the uplink has no port yet")
    row = TableEntry(
        names.UPLINK,
        {names.JOB_KEY: admission.job},
        names.SET_UPLINK,
        {
            "port": uplink.port,
            "node": uplink.node,
            "bitmap": uplink.bitmap,
            "fan_in": uplink.fan_in,
            "counter_row": admission.counter_row,
            "own_node": admission.node,
            "own_fan_in": admission.fan_in,
        },
    )
    return [
        row,
        _port_row(admission.job, uplink.port, names.SET_PARENT, {}),
        _receiver_row(admission.job, 0, uplink),
    ]


def _port_row(job: int, port: int, action: str, params: dict[str, int]) -> TableEntry:
    return TableEntry(names.MEMBER, {names.JOB_KEY: job, names.INGRESS_PORT: port}, action, params)


def _receiver_row(job: int, replica: int, to: Member | Uplink) -> TableEntry:
    match = {names.JOB_KEY: job, names.REPLICA: replica}
    address = {"mac": mac_to_int(to.mac), "ip": ipv4_to_int(to.ip), "udp_port": to.udp_port}
    if isinstance(to, Member) and to.rank is not None:
        return TableEntry(names.RECEIVER, match, names.DELIVER, {**address, "rank": to.rank})
    ranks = to.ranks if isinstance(to, Member) else ALL_RANKS
    receivers = {"first_rank": ranks.start, "rank_count": len(ranks)}
    return TableEntry(names.RECEIVER, match, names.PASS_ON, {**address, **receivers})


@dataclass(frozen=True, slots=True)
class Contents:
    """The jobs on a switch, and `orphans`: rows that belong to no job.

    A controller that died between two writes leaves orphans: rows of a job that has no row in the job
    table, and multicast groups in the jobs' range of ids that no job uses.
    """

    jobs: dict[int, Admission]
    orphans: tuple[Row, ...]


@dataclass(slots=True)
class _JobRows:
    """The rows of one job id that have been found so far."""

    job: TableEntry | None = None
    uplink: TableEntry | None = None
    change: TableEntry | None = None
    ports: list[TableEntry] = field(default_factory=list)
    receivers: dict[int, TableEntry] = field(default_factory=dict)
    supporting: list[TableEntry] = field(default_factory=list)


class ParseCache:
    """Earlier results of `parse`; jobs whose rows are the same are not parsed again."""

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[_JobRows, Admission]] = {}

    def jobs(self, found: Mapping[int, _JobRows]) -> dict[int, Admission]:
        """Return the jobs that the rows `found` form, and store them in place of the earlier results."""
        now: dict[int, tuple[_JobRows, Admission]] = {}
        for job, of_job in found.items():
            if of_job.job is None:
                continue
            known = self._jobs.get(job)
            same = known is not None and known[0] == of_job
            now[job] = known if same and known else (of_job, _admission(job, of_job.job, of_job))
        self._jobs = now
        return {job: admission for job, (_, admission) in now.items()}


def parse(rows: Iterable[Row], *, job_groups: range, before: ParseCache | None = None) -> Contents:
    """Sort rows read from the tables in `TABLES` and the multicast groups into jobs and orphans.

    `job_groups` are the group ids that only jobs use. `before` has the results of the last call for this
    switch, and receives the results of this call.
    """
    found: dict[int, _JobRows] = {}
    groups: list[MulticastGroup] = []
    for row in rows:
        if isinstance(row, MulticastGroup):
            groups.append(row)
            continue
        of_job = found.setdefault(_number(row, names.JOB_KEY), _JobRows())
        if row.table == names.JOB:
            of_job.job = row
            continue
        of_job.supporting.append(row)
        match row.table, row.action:
            case names.MEMBER, names.SET_MEMBER:
                of_job.ports.append(row)
            case names.CHANGE, _:
                of_job.change = row
            case names.UPLINK, _:
                of_job.uplink = row
            case names.RECEIVER, _:
                of_job.receivers[_number(row, names.REPLICA)] = row

    jobs = (before or ParseCache()).jobs(found)
    used_groups = {admission.group for admission in jobs.values()}
    return Contents(
        jobs,
        (
            *(row for f in found.values() if f.job is None for row in f.supporting),
            *(g for g in groups if g.id in job_groups and g.id not in used_groups),
        ),
    )


def _admission(job: int, row: TableEntry, found: _JobRows) -> Admission:
    members = []
    for replica, receiver in sorted(found.receivers.items()):
        if replica == 0:
            continue
        port, bitmap, below = _port(found.ports, 1 << (replica - 1))
        if receiver.action == names.DELIVER:
            bitmap = 1 << (replica - 1)  # the port may be that of other workers, too
            members.append(Member(receiver.params["rank"], port, *_address(receiver), bitmap, below))
            continue
        first, count = receiver.params["first_rank"], receiver.params["rank_count"]
        ranks = range(first, first + count)
        members.append(Member(None, port, *_address(receiver), bitmap, below, ranks))
    params = row.params
    return Admission(
        job=job,
        counter_row=params["counter_row"],
        region=Region(params["offset"], params["size"]),
        generation=params["generation"],
        group=params["group"],
        members=tuple(members),
        fan_in=params["fan_in"],
        window=params["window"],
        uplink=_uplink(found),
        node=params["node"],
        result_bitmap=params["result_bitmap"],
        transit=bool(params["transit"]),
        preempt=bool(params["preempt"]),
        ageing=params["ageing"],
        max_age_us=params["max_age_us"],
        change=_change(found.change),
        registration=decode_registration(row.metadata),
    )


def _port(rows: Iterable[TableEntry], bit: int) -> tuple[int | None, int, range]:
    """Return the port at which packets with the contribution bit `bit` enter, its bits, and its nodes.

    The port's bits are all contribution bits of packets that enter there. Its nodes are the nodes of the tree
    behind the port.
    """
    for row in rows:
        if row.params["bitmap"] & bit:
            first, count = row.params["first_node"], row.params["node_count"]
            return _number(row, names.INGRESS_PORT), row.params["bitmap"], range(first, first + count)
    return None, bit, range(0)


def _change(row: TableEntry | None) -> RegionChange | None:
    if row is None:
        return None
    return RegionChange(row.params["number"], Region(row.params["offset"], row.params["size"]))


def _uplink(found: _JobRows) -> Uplink | None:
    row, receiver = found.uplink, found.receivers.get(0)
    if row is None or receiver is None:
        return None
    params = row.params
    return Uplink(params["port"], *_address(receiver), params["node"], params["bitmap"], params["fan_in"])


def _address(receiver: TableEntry) -> tuple[str, str, int]:
    params = receiver.params
    return mac_from_int(params["mac"]), ipv4_from_int(params["ip"]), params["udp_port"]


def _number(row: TableEntry, name: str) -> int:
    value = row.match[name]
    if not isinstance(value, int):
        raise ValueError(f"{row.table} matches {name} exactly, not by {value}")
    return value


# ---------------------------------------------------------------------------
# The rows that a switch holds, as a controller knows them without reading them again. No I/O.
#
# Only a primary writes, and each of our controllers is primary under an election id of its own, one more
# than the highest before (`controller.p4runtime_shim.client`). So if the id of a controller's turn
# follows the last turn's id, no controller has written in between, and the switch holds what this controller
# read and wrote. In any other turn, and after a write that failed, the rows have to be read.
#
# Controllers of other kinds, which claim an id that was there before or write under a role of their own,
# are not noticed that way; `SwitchSession.observe` reads the rows.


class RowCache:
    """A controller's knowledge of a switch's rows in the tables of jobs, and of its multicast groups."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = frozenset(tables)
        self._read: Sequence[Row] | None = None
        """The rows as last read; None: they are not known."""
        self._rows: dict[Key, Row] | None = None
        """The rows `_read`, changed by all later writes; None: there was no later write."""
        self.in_turn = False
        """Whether this controller is now the only one that may write to the switch (`Target.turn`)."""
        self._in_doubt = False

    def begin(self, *, undisturbed: bool) -> None:
        """Begin a turn, in which no other controller writes to the switch (`Target.turn`).

        `undisturbed`: no other controller has had a turn since this controller's previous turn.
        """
        self.in_turn, self._in_doubt = True, False
        if not undisturbed:
            self._read = self._rows = None

    def end(self) -> None:
        """End the turn: other controllers may write to the switch from now on."""
        self.in_turn = False

    def rows(self) -> list[Row] | None:
        """Return the switch's rows if they are known for certain; None: they have to be read.

        Outside a turn no rows are certain, because other controllers may be writing.
        """
        if self._read is None or not self.in_turn:
            return None
        return list(self._read if self._rows is None else self._rows.values())

    def store(self, rows: Sequence[Row]) -> None:
        """Record all rows, as they were read."""
        if not self._in_doubt:  # a failed write may still be applied, until this turn is over
            self._read, self._rows = rows, None

    def apply(self, kind: Kind, entries: Iterable[Entry]) -> None:
        """Record a write that the switch has applied."""
        if self._read is None:
            return
        if self._rows is None:
            self._rows = {key_of(row): row for row in self._read}
        for entry in entries:
            if isinstance(entry, MulticastGroup) or (
                isinstance(entry, TableEntry) and entry.table in self._tables and not entry.default
            ):
                if kind == "DELETE":
                    self._rows.pop(key_of(entry), None)
                else:
                    self._rows[key_of(entry)] = entry

    def invalidate(self) -> None:
        """Mark the rows as unknown, as after a failed write."""
        self._read = self._rows = None
        self._in_doubt = True
