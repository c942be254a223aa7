"""A job's rows in the tables of ``p4src/tna/*.p4``, computed from its admission. No I/O.

These tables match on all fields that a contribution must have, so a job has many rows in them. An `Admission`
cannot be read back from these rows, so `controller.switches.tofino` stores it on the switch, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from controller.errors import BadJob
from controller.switches import names
from controller.switches.model import (
    OUTCOMES,
    SWITCH_IP,
    SWITCH_MAC,
    Admission,
    Member,
    Uplink,
    ipv4_to_int,
    mac_to_int,
)
from controller.switches.target import Match, ProgramInfo, Range, TableEntry, TableInfo

MEMBER = "Ingress.member"
NEIGHBOUR = "Ingress.neighbour"
PART = "Ingress.slot.part"
EXITS = "Ingress.leaving.exits"
RECEIVER = "Egress.receiver"
BRIDGE = "Ingress.leaving.bridge"
COUNTER = "Ingress.leaving.outcomes"
JOB_KEY, KIND_KEY = "hdr.ina.job", "hdr.ina.kind"
INGRESS_PORT, EGRESS_PORT = "intrinsic.ingress_port", "intrinsic.egress_port"

SLOT_PSN = "Ingress.slot.slot_psn"
STRENGTH = "Ingress.slot.slot_strength"
BITMAPS = ("Ingress.slot.slot_bitmap", "Ingress.slot.slot_seen")
NEVER_USED = 0xFFFF_FFFF
"""The PSN in a slot that no packet has used yet, in the exclusive program."""

SELF_PORT, SELF_GROUP = 68, 0xFFFF
"""The port that leads back into the pipeline, and the multicast group of this port (program shared)."""

GRADIENT, RESULT, STATUS, PARTIAL, REMINDER = range(1, 6)
RELEASE = 15
_TO_GROUP, _TO_UPLINK = 2, 3
_LANE = "Ingress.slot.lanes.lane_"
_ANY_NODE = Range(0, 0xFFFF)
_ARCHITECTURES = ("tna", "t2na")


def is_ours(program: ProgramInfo) -> bool:
    """Return whether a program is one of this project's for Tofino, by its architecture and tables."""
    return program.architecture in _ARCHITECTURES and {MEMBER, EXITS, RECEIVER} <= program.tables.keys()


def as_seen(program: ProgramInfo) -> ProgramInfo:
    """Return the description of a Tofino program with the names that the v1model programs have.

    Controllers see this project's Tofino programs under these names. Other programs are returned unchanged.
    """
    if not is_ours(program):
        return program
    jobs = program.tables[EXITS].size // 2
    exact = {names.JOB_KEY: "exact"}
    tables = {
        names.JOB: TableInfo(jobs, exact, frozenset([names.SET_JOB])),
        names.UPLINK: TableInfo(jobs, exact, frozenset([names.SET_UPLINK])),
        names.MEMBER: TableInfo(
            program.tables[MEMBER].size,
            {**exact, names.INGRESS_PORT: "exact"},
            frozenset([names.SET_MEMBER, names.SET_PARENT]),
        ),
        names.RECEIVER: TableInfo(
            program.tables[RECEIVER].size,
            {**exact, names.REPLICA: "exact"},
            frozenset([names.DELIVER, names.PASS_ON]),
        ),
        names.BRIDGE: TableInfo(
            program.tables[BRIDGE].size,
            {names.BRIDGE_KEY: "exact"},
            frozenset([names.FORWARD, names.FLOOD]),
        ),
    }
    slots = program.registers[BITMAPS[0]]
    lanes = sum(name.startswith(_LANE) for name in program.registers)
    registers = {names.SLOT_REGISTER: slots} | {f"{names.LANE_REGISTERS}{i}": slots for i in range(lanes)}
    if NEIGHBOUR in program.tables:
        registers |= {names.JOB_REGISTER: slots, names.PRIORITY_REGISTER: slots}
    return replace(
        program,
        tables=tables,
        counters={names.OUTCOMES: program.counters[COUNTER]},
        registers=registers,
        actions=_ACTIONS,
        physical=program,
    )


_JOB_PARAMS = (
    *("counter_row", "offset", "size", "generation", "fan_in", "full_bitmap", "group", "node"),
    *("result_bitmap", "root", "transit", "preempt", "ageing", "window", "max_age_us"),
)
_UPLINK_PARAMS = ("port", "node", "bitmap", "fan_in", "counter_row", "own_node", "own_fan_in")
_ACTIONS: Mapping[str, Mapping[str, int]] = {
    names.SET_JOB: dict.fromkeys(_JOB_PARAMS, 32),
    names.SET_MEMBER: {"bitmap": 32, "first_node": 16, "node_count": 16},
    names.SET_PARENT: {},
    names.SET_UPLINK: dict.fromkeys(_UPLINK_PARAMS, 32),
    names.DELIVER: {"mac": 48, "ip": 32, "udp_port": 16, "rank": 16},
    names.PASS_ON: {"mac": 48, "ip": 32, "udp_port": 16, "first_rank": 16, "rank_count": 16},
    names.FORWARD: {"port": 9},
    names.FLOOD: {"group": 16},
}


def rows(admission: Admission, *, shared: bool) -> tuple[TableEntry, ...]:
    """Return a job's rows in the program's tables. Raises BadJob if these programs cannot serve the job."""
    if shared and len(admission.members) == 1:
        raise BadJob(f"job {admission.job} has a single child here: shared slots for Tofino want two or more")
    region = admission.region
    if region.size & (region.size - 1) or (region.size and region.offset % region.size):
        raise BadJob(
            f"job {admission.job} has slots {region.offset} to {region.end - 1}; want a power of two of slots"
            " that starts at a multiple of their number, for a program for Tofino"
        )
    if admission.transit or region.size == 0 or admission.change is not None:
        raise BadJob(f"job {admission.job} has no slots of its own here: a program for Tofino needs some")
    ports = [member.port for member in admission.members]
    if len(set(ports)) < len(ports):
        raise BadJob(f"job {admission.job} has several members at one port; for Tofino, want one at a port")
    found = _shared(admission) if shared else _exclusive(admission)
    return (*found, *_exits(admission), *_receivers(admission, shared=shared))


def _where(admission: Admission) -> dict[str, int]:
    region = admission.region
    return {"counter_row": admission.counter_row, "mask": region.size - 1, "place": region.offset}


def _from(admission: Admission, port: int | None, **more: Match) -> dict[str, Match]:
    assert port is not None
    return {INGRESS_PORT: port, JOB_KEY: admission.job, "hdr.ina.epoch": admission.epoch} | {
        f"hdr.ina.{name}": value for name, value in more.items()
    }


def _contributor(admission: Admission, member: Member) -> dict[str, Match]:
    fields = {"node": admission.node, "bitmap": member.bitmap, "fan_in": admission.fan_in}
    return _from(admission, member.port, **fields)


def _exclusive(admission: Admission) -> Iterator[TableEntry]:
    whole = {**_where(admission), "full_bitmap": admission.full_bitmap}
    for member in admission.members:
        match = {**_contributor(admission, member), KIND_KEY: GRADIENT}
        yield TableEntry(MEMBER, match, "Ingress.contributes", {**whole, "root": int(admission.root)})
    if admission.uplink is not None and not admission.root:
        fields = {"node": 0, "bitmap": admission.result_bitmap, "fan_in": admission.result_bitmap.bit_count()}
        match = {**_from(admission, admission.uplink.port, **fields), KIND_KEY: RESULT}
        yield TableEntry(MEMBER, match, "Ingress.comes_down", whole)


def _shared(admission: Admission) -> Iterator[TableEntry]:
    action = "Ingress.contends" if admission.preempt else "Ingress.contributes"
    for member in admission.members:
        others = admission.full_bitmap & ~member.bitmap
        params = {**_where(admission), "others": others, "root": int(admission.root)}
        yield TableEntry(MEMBER, _contributor(admission, member), action, params)
        for kind in (PARTIAL, RESULT):  # parts of sums below, and results requested by a reminder
            yield _neighbour(admission, member.port, kind, _pass(admission, "passed_up", _TO_UPLINK))
    yield _neighbour(admission, SELF_PORT, RELEASE, None)
    if admission.uplink is not None:
        port = admission.uplink.port
        yield _neighbour(admission, port, RESULT, None)
        here = Range(admission.node, admission.node)
        yield _neighbour(admission, port, REMINDER, None, node=here, priority=2)
        for kind in (REMINDER, STATUS):
            yield _neighbour(admission, port, kind, _pass(admission, "passed_down", _TO_GROUP))
    node = {"node": admission.node, "fan_in": admission.fan_in}
    yield TableEntry(PART, {JOB_KEY: admission.job}, "Ingress.slot.set_node", node)


def _pass(admission: Admission, outcome: str, way: int) -> dict[str, int]:
    return {"counter_row": admission.counter_row, "outcome": OUTCOMES[outcome], "way": way}


def _neighbour(
    admission: Admission,
    port: int | None,
    kind: int,
    passes: dict[str, int] | None,
    *,
    node: Range = _ANY_NODE,
    priority: int = 1,
) -> TableEntry:
    """Return the entry for one kind of packets that are not contributions.

    With `passes`, the packets are forwarded with these parameters; with None, they go to a slot.
    """
    match = {**_from(admission, port, node=node), KIND_KEY: kind}
    if node == _ANY_NODE:
        del match["hdr.ina.node"]  # a range of everything is left out
    if passes is None:
        return TableEntry(NEIGHBOUR, match, "Ingress.locate", _where(admission), priority=priority)
    return TableEntry(NEIGHBOUR, match, "Ingress.pass", passes, priority=priority)


def _exits(admission: Admission) -> Iterator[TableEntry]:
    key = {"meta.way": _TO_GROUP, JOB_KEY: admission.job}
    yield TableEntry(EXITS, key, "Ingress.leaving.to_group", {"group": admission.group})
    if admission.uplink is not None and admission.uplink.port is not None:
        key = {"meta.way": _TO_UPLINK, JOB_KEY: admission.job}
        yield TableEntry(EXITS, key, "Ingress.leaving.to_port", {"port": admission.uplink.port})


def _receivers(admission: Admission, *, shared: bool) -> Iterator[TableEntry]:
    for member in admission.members:
        to = _address(member)
        bitmap = admission.result_bitmap
        whole = {**to, "result_bitmap": bitmap, "result_fan_in": bitmap.bit_count()}
        yield _receiver(admission, member.port, RESULT, "Egress.result_to_child", whole)
        for kind in (STATUS, REMINDER):
            yield _receiver(admission, member.port, kind, "Egress.to_child", to)
    up = admission.uplink
    if up is not None:
        to = _address(up)
        for kind in (PARTIAL, RESULT, STATUS, REMINDER):
            yield _receiver(admission, up.port, kind, "Egress.to_parent", to)
        if not admission.root:
            parent = {"node": up.node, "bitmap": up.bitmap, "fan_in": up.fan_in}
            yield _receiver(admission, up.port, GRADIENT, "Egress.sum_to_parent", {**to, **parent})
    if shared:
        for kind in (GRADIENT, RESULT, PARTIAL, REMINDER):
            yield _receiver(admission, SELF_PORT, kind, "Egress.to_self", {})


def _receiver(
    admission: Admission, port: int | None, kind: int, action: str, params: Mapping[str, int]
) -> TableEntry:
    assert port is not None
    return TableEntry(RECEIVER, {JOB_KEY: admission.job, EGRESS_PORT: port, KIND_KEY: kind}, action, params)


def _address(to: Member | Uplink) -> dict[str, int]:
    return {
        "own_mac": mac_to_int(SWITCH_MAC),
        "own_ip": ipv4_to_int(SWITCH_IP),
        "mac": mac_to_int(to.mac),
        "ip": ipv4_to_int(to.ip),
        "udp_port": to.udp_port,
    }
