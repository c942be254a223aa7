"""A job's table entries: from an admission to rows and, on a switch that others use too, back.

A job with all its rows is an `Admission`. Its row in the job table comes last and goes first, so
that packets meet either the whole job or none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller import names
from controller.model import Admission, Member, Region, ipv4_from_int, ipv4_to_int, mac_from_int, mac_to_int
from controller.p4runtime_shim.rows import Group, Row


def job_row(admission: Admission) -> Row:
    """Make the row that lets the job's packets in."""
    return Row(
        names.JOB,
        {names.JOB_KEY: admission.job},
        names.SET_JOB,
        {
            "counter_row": admission.counter_row,
            "offset": admission.region.offset,
            "size": admission.region.size,
            "generation": admission.generation,
            "fan_in": len(admission.members),
            "full_bitmap": (1 << len(admission.members)) - 1,
            "group": admission.group,
        },
    )


def supporting_rows(admission: Admission) -> tuple[Row | Group, ...]:
    """Make everything else: the members by port, their addresses by rank, the multicast group.

    Raises BadJob for an address that is none; ValueError for a member without a port.
    """
    rows: list[Row | Group] = []
    replicas = []
    for member in admission.members:
        if member.port is None:
            raise ValueError(f"rank {member.rank} has no port yet")
        rows.append(
            Row(
                names.MEMBER,
                {names.JOB_KEY: admission.job, names.INGRESS_PORT: member.port},
                names.SET_MEMBER,
                {"bitmap": 1 << member.rank},
            )
        )
        rows.append(
            Row(
                names.RECEIVER,
                {names.JOB_KEY: admission.job, names.REPLICA: member.rank},
                names.DELIVER,
                {
                    "mac": mac_to_int(member.mac),
                    "ip": ipv4_to_int(member.ip),
                    "udp_port": member.udp_port,
                },
            )
        )
        replicas.append((member.port, member.rank))
    return (*rows, Group(admission.group, tuple(replicas)))


@dataclass(frozen=True, slots=True)
class Contents:
    """What a switch holds of jobs: those complete, and rows that belong to none.

    Orphans are left by a controller that died at work. Rows of our tables whose job has no row in
    the job table are orphans, and so are groups in the jobs' range that no job uses.
    """

    jobs: dict[int, Admission]
    orphans: tuple[Row | Group, ...]


def parse(rows: Iterable[Row | Group], *, job_groups: range) -> Contents:
    """Sort out what was read of the job, member and receiver tables and the multicast groups.

    `job_groups` are the group ids that only jobs use.
    """
    job_rows: dict[int, Row] = {}
    ports: dict[int, dict[int, int]] = {}
    receivers: dict[int, dict[int, Row]] = {}
    groups: dict[int, Group] = {}
    others: list[tuple[int, Row]] = []
    for row in rows:
        if isinstance(row, Group):
            groups[row.id] = row
            continue
        job = _number(row, names.JOB_KEY)
        match row.table:
            case names.JOB:
                job_rows[job] = row
            case names.MEMBER:
                rank = row.params["bitmap"].bit_length() - 1
                ports.setdefault(job, {})[rank] = _number(row, names.INGRESS_PORT)
                others.append((job, row))
            case names.RECEIVER:
                receivers.setdefault(job, {})[_number(row, names.REPLICA)] = row
                others.append((job, row))

    jobs = {
        job: _admission(job, row, ports.get(job, {}), receivers.get(job, {})) for job, row in job_rows.items()
    }
    used_groups = {admission.group for admission in jobs.values()}
    return Contents(
        jobs,
        (
            *(row for job, row in others if job not in jobs),
            *(g for g in groups.values() if g.id in job_groups and g.id not in used_groups),
        ),
    )


def _admission(job: int, row: Row, ports: dict[int, int], receivers: dict[int, Row]) -> Admission:
    members = []
    for rank, receiver in sorted(receivers.items()):
        address = receiver.params
        members.append(
            Member(
                rank,
                ports.get(rank),
                mac_from_int(address["mac"]),
                ipv4_from_int(address["ip"]),
                address["udp_port"],
            )
        )
    return Admission(
        job=job,
        counter_row=row.params["counter_row"],
        region=Region(row.params["offset"], row.params["size"]),
        generation=row.params["generation"],
        group=row.params["group"],
        members=tuple(members),
    )


def _number(row: Row, field: str) -> int:
    value = row.match[field]
    if not isinstance(value, int):
        raise ValueError(f"{row.table} matches {field} exactly, not by {value}")
    return value
