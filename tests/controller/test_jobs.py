"""Jobs to rows and back, without a switch."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller import ProgramBundle
from controller.errors import BadJob, OutOfMemory, ProgramMismatch, UnknownName
from controller.p4runtime_shim.codec import Codec
from controller.policies.memory import regions
from controller.switches import names
from controller.switches.jobs import job_row, parse, supporting_rows
from controller.switches.model import (
    ALL_RANKS,
    Admission,
    Feature,
    Member,
    Part,
    RegionChange,
    TreePosition,
    Uplink,
)
from controller.switches.planning import check_part
from controller.switches.programs import capabilities, objects
from controller.switches.target import (
    CounterCell,
    Entry,
    Lpm,
    MulticastGroup,
    ProgramInfo,
    Range,
    TableEntry,
    TableInfo,
    Ternary,
)
from controller.switches.tofino_rows import EXITS, MEMBER, NEIGHBOUR, RECEIVER, rows
from controller.vocabulary import Region
from p4src.messages import p4info_pb2
from p4src.messages import p4runtime_pb2 as p4
from softswitch import p4info
from tests.controller.reconciling import all_rows
from tests.programs import COUNTING, EVICTION, WITHOUT_PRIORITY, copied, p4src_program, program_of

GROUPS = range(1, 256)
FALLBACK = Uplink(40, "02:00:00:00:fb:01", "10.0.255.2", 42592)
PARENT = Uplink(40, "02:00:00:00:00:fe", "10.0.0.254", 42592, node=3, bitmap=0b100, fan_in=5)


def member(rank: int, port: int | None = None) -> Member:
    return Member(
        rank, rank if port is None else port, f"02:00:00:00:00:{rank:02x}", f"10.0.0.{rank + 1}", 9000 + rank
    )


def child_switch(port: int, bitmap: int, below: range = range(0), ranks: range = ALL_RANKS) -> Member:
    return Member(None, port, "02:00:00:00:00:fe", "10.0.0.254", 42592, bitmap, below, ranks)


def admission(job: int = 7, *, row: int = 3, ranks: int = 2, first_port: int = 0) -> Admission:
    return Admission(
        job=job,
        counter_row=row,
        region=Region(64, 32),
        generation=0xABCD,
        group=row,
        members=tuple(member(r, first_port + r) for r in range(ranks)),
        fan_in=ranks,
        window=16,
        result_bitmap=(1 << ranks) - 1,
    )


NOTHING_BELOW = {"first_node": 0, "node_count": 0}
INNER = Admission(
    job=9,
    counter_row=4,
    region=Region(0, 0),
    generation=2**32 - 1,
    group=4,
    members=(
        replace(member(6, 1), bitmap=1),
        child_switch(2, 0b10, range(7, 9), range(3, 8)),
        child_switch(3, 0b11100),
    ),
    fan_in=5,
    window=2**31 - 1,
    uplink=PARENT,
    node=65534,
    result_bitmap=0b11,
    preempt=True,
    ageing=255,
    max_age_us=2**32 - 1,
)
TRANSIT = replace(
    INNER,
    job=10,
    counter_row=5,
    group=5,
    members=(child_switch(2, 0b1000),),
    transit=True,
    node=0,
    preempt=False,
)


MOVING = replace(admission(11, row=6, first_port=20), change=RegionChange(7 << 32 | 5, Region(8, 100)))


def member_row(job: int, port: int, action: str, **params: int) -> TableEntry:
    return TableEntry(
        names.MEMBER, {"hdr.ina.job": job, "standard_metadata.ingress_port": port}, action, params
    )


def receiver_row(job: int, replica: int, **params: int) -> TableEntry:
    match = {"hdr.ina.job": job, "standard_metadata.egress_rid": replica}
    action = names.DELIVER if "rank" in params else names.PASS_ON
    return TableEntry(names.RECEIVER, match, action, params)


def test_the_rows_of_a_job_of_two() -> None:
    assert job_row(admission()) == TableEntry(
        names.JOB,
        {"hdr.ina.job": 7},
        names.SET_JOB,
        {
            "counter_row": 3,
            "offset": 64,
            "size": 32,
            "generation": 0xABCD,
            "fan_in": 2,
            "full_bitmap": 0b11,
            "group": 3,
            "node": 0,
            "result_bitmap": 0b11,
            "root": 1,
            "transit": 0,
            "preempt": 0,
            "ageing": 0,
            "window": 16,
            "max_age_us": 0,
        },
    )
    assert supporting_rows(admission()) == (
        member_row(7, 0, names.SET_MEMBER, bitmap=1, **NOTHING_BELOW),
        receiver_row(7, 1, mac=0x020000000000, ip=0x0A000001, udp_port=9000, rank=0),
        member_row(7, 1, names.SET_MEMBER, bitmap=2, **NOTHING_BELOW),
        receiver_row(7, 2, mac=0x020000000001, ip=0x0A000002, udp_port=9001, rank=1),
        MulticastGroup(3, ((0, 1), (1, 2))),
    )


def test_the_rows_of_a_node_between_others() -> None:
    params = job_row(INNER).params
    assert {name: params[name] for name in ("node", "fan_in", "full_bitmap", "result_bitmap", "root")} == {
        "node": 65534,
        "fan_in": 5,
        "full_bitmap": 0b11111,
        "result_bitmap": 0b11,
        "root": 0,
    }
    switch = {"mac": 0x0200000000FE, "ip": 0x0A0000FE, "udp_port": 42592}
    of_any = {"first_rank": 0, "rank_count": 0x8000}
    assert supporting_rows(INNER) == (
        TableEntry(
            names.UPLINK,
            {"hdr.ina.job": 9},
            names.SET_UPLINK,
            {
                "port": 40,
                "node": 3,
                "bitmap": 0b100,
                "fan_in": 5,
                "counter_row": 4,
                "own_node": 65534,
                "own_fan_in": 5,
            },
        ),
        member_row(9, 40, names.SET_PARENT),
        receiver_row(9, 0, **switch, **of_any),
        member_row(9, 1, names.SET_MEMBER, bitmap=1, **NOTHING_BELOW),
        receiver_row(9, 1, mac=0x020000000006, ip=0x0A000007, udp_port=9006, rank=6),
        member_row(9, 2, names.SET_MEMBER, bitmap=0b10, first_node=7, node_count=2),
        receiver_row(9, 2, **switch, first_rank=3, rank_count=5),
        member_row(9, 3, names.SET_MEMBER, bitmap=0b11100, **NOTHING_BELOW),
        receiver_row(9, 3, **switch, **of_any),
        MulticastGroup(4, ((1, 1), (2, 2), (3, 3))),
    )


def test_a_switch_that_packets_only_pass_has_the_node_above() -> None:
    assert not TRANSIT.root
    params = job_row(TRANSIT).params
    assert (params["node"], params["root"], params["transit"], params["fan_in"]) == (0, 0, 1, 5)


def test_the_epoch_is_the_generations_low_byte() -> None:
    assert admission().epoch == 0xCD


@given(st.lists(st.integers(1, 32), max_size=6), st.randoms(use_true_random=False))
def test_any_jobs_in_any_order_read_back_as_they_were(sizes: list[int], order: random.Random) -> None:
    jobs = {i: admission(i, row=i + 10, ranks=n, first_port=40 * i) for i, n in enumerate(sizes)}
    jobs |= {job.job: job for job in (INNER, TRANSIT, MOVING)}
    rows = [row for job in jobs.values() for row in all_rows(job)]
    order.shuffle(rows)
    contents = parse(rows, job_groups=GROUPS)
    assert contents.jobs == jobs
    assert contents.orphans == ()


def test_rows_without_their_job_are_orphans_and_others_groups_are_not() -> None:
    whole, half, flood = admission(), INNER, MulticastGroup(300, ((0, 0),))
    contents = parse([*all_rows(whole), *supporting_rows(half), flood], job_groups=GROUPS)
    assert contents.jobs == {7: whole}
    assert list(contents.orphans) == list(supporting_rows(half))


def test_a_job_that_lost_members_is_still_a_job() -> None:
    contents = parse([job_row(admission())], job_groups=GROUPS)
    assert contents.jobs[7].region == Region(64, 32)
    assert contents.jobs[7].members == ()


def shared_job(*members: Member, **changes: object) -> Part:
    return replace(Part(members, 8, mode="shared", fallback=FALLBACK), **changes)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Part((), 8), "no members"),
        (Part(tuple(member(r) for r in range(33)), 8), "33 members; one switch sums up to 32"),
        (Part((member(0), member(2)), 8), r"ranks are \[0, 2\]; they must be 0 to 1"),
        (Part((member(0), replace(member(0), port=1)), 8), r"ranks are \[0, 0\]"),
        (Part((member(0, 5), member(1, 5)), 8), "port 5 has two members"),
        (Part((member(0),), 1), "asks for 1 slot; want at least 2, twice the window"),
        (Part((replace(member(0), mac="02:00"),), 8), "'02:00' is not a MAC address"),
        (Part((replace(member(0), ip="10.0.0"),), 8), "'10.0.0' is not an IPv4 address"),
        (Part((replace(member(0), udp_port=0),), 8), "rank 0 has UDP port 0"),
        (Part((member(0), replace(member(1), bitmap=1)), 8), "rank 1 shares a contribution bit with another"),
        (
            Part((member(0), replace(member(1), bitmap=4)), 8),
            "rank 1 has the contribution bits 0b100; .* 0b11",
        ),
        (Part((member(0), child_switch(1, 0)), 8), "the switch at port 1 has the contribution bits 0b0"),
        (Part((replace(member(0), bitmap=3),), 8), "rank 0 has 2 contribution bits; a worker has one"),
        (Part((replace(child_switch(0, 1), udp_port=9),), 8), "UDP port 9; switches take packets at 42592"),
        (Part((member(0),), 8, fallback=FALLBACK), "exclusive job .* must not have a fallback server"),
        (Part((member(0),), 8, preempt=True), "are for shared jobs only"),
        (shared_job(member(0), fallback=None), "a shared job needs a fallback server"),
        (shared_job(member(0), fallback=replace(FALLBACK, port=0)), "port 0 has a member and is the uplink"),
        (shared_job(member(0), fallback=replace(FALLBACK, udp_port=0)), "the fallback server has UDP port 0"),
        (shared_job(member(0), window=0), "window is 0 packets"),
        (shared_job(member(0), slots=1), "window is 0 packets"),
        (shared_job(member(0), max_age_us=1 << 32), "highest age is 4294967296 us"),
        (shared_job(member(0), place=TreePosition(transit=True)), "the root of a job must aggregate"),
        (
            Part((member(1 << 15),), 8, place=TreePosition(1, PARENT)),
            "rank 32768 is too high; want at most 32767",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_the_reason(job: Part, message: str) -> None:
    with pytest.raises(BadJob, match=message):
        check_part(job, max_members=32)


def test_jobs_that_can_be() -> None:
    check_part(Part((member(0), member(1)), 2), max_members=2)
    check_part(shared_job(member(0), region=Region(5, 0), slots=0, window=1), max_members=2)
    check_part(
        Part((replace(member(7), bitmap=16),), 8, place=TreePosition(0, PARENT, 1, transit=True)),
        max_members=32,
    )


# ---------------------------------------------------------------------------
# A job in the tables of the programs for Tofino: what they can serve, and regions that they need.


MEMBERS = tuple(Member(rank, rank + 1, f"02:00:00:00:00:0{rank}", f"10.0.0.{rank}", 1) for rank in range(3))
JOB = Admission(
    job=7,
    counter_row=1,
    region=Region(32, 16),
    generation=0x105,
    group=1,
    members=MEMBERS,
    fan_in=3,
    window=8,
    uplink=Uplink(9, "02:00:00:00:00:fe", "10.0.0.254"),
    result_bitmap=0b111,
)


def test_each_child_is_admitted_by_all_that_its_packets_say() -> None:
    found = [row for row in rows(JOB, shared=False) if row.table == MEMBER]
    said = [(row.match["intrinsic.ingress_port"], row.match["hdr.ina.bitmap"]) for row in found]
    assert said == [(1, 1), (2, 2), (3, 4)]
    assert {row.match["hdr.ina.epoch"] for row in found} == {5}
    assert {(row.params["mask"], row.params["place"], row.params["root"]) for row in found} == {(15, 32, 1)}


def test_no_two_rows_have_the_same_match() -> None:
    below = replace(JOB, node=2, uplink=replace(JOB.uplink, node=0, bitmap=4, fan_in=3))
    for job in (JOB, below):
        for shared in (False, True):
            found = rows(job, shared=shared)
            keys = [(row.table, tuple(sorted(row.match.items())), row.priority) for row in found]
            assert len(set(keys)) == len(keys)
            tables = {MEMBER, EXITS, RECEIVER}
            assert tables < {row.table for row in found} if shared else tables == {row.table for row in found}
            assert any(row.table == NEIGHBOUR for row in found) == shared


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (replace(JOB, region=Region(8, 16)), "slots 8 to 23; want a power of two of slots"),
        (replace(JOB, region=Region(0, 12)), "slots 0 to 11; want a power of two of slots"),
        (replace(JOB, region=Region(0, 0)), "no slots of its own"),
        (replace(JOB, transit=True), "no slots of its own"),
        (replace(JOB, members=(*MEMBERS[:2], replace(MEMBERS[2], port=1))), "several members at one port"),
    ],
)
def test_a_job_that_these_programs_cannot_serve_is_refused(job: Admission, message: str) -> None:
    for shared in (False, True):
        with pytest.raises(BadJob, match=message):
            rows(job, shared=shared)


def test_regions_start_at_a_multiple_of_their_size_if_they_must() -> None:
    assert regions.allocate(64, [Region(0, 4)], 16) == Region(4, 16)
    assert regions.allocate(64, [Region(0, 4)], 16, aligned=True) == Region(16, 16)
    with pytest.raises(OutOfMemory):
        regions.allocate(32, [Region(0, 4), Region(20, 4)], 16, aligned=True)


# ---------------------------------------------------------------------------
# What a program offers to jobs is read from its P4Info, and what it lacks is named.


def described(name: str) -> ProgramInfo:
    return objects(p4info(p4src_program(name, LANES=32)))


@pytest.fixture(scope="module")
def shared() -> ProgramInfo:
    return described("shared")


def without(of: Mapping[str, Any], name: str) -> dict[str, Any]:
    assert name in of
    return {key: value for key, value in of.items() if key != name}


@pytest.mark.parametrize(
    ("program", "mode", "salted", "lacks"),
    [
        ("exclusive", "exclusive", False, {Feature.PREEMPTION, Feature.MOVES}),
        ("shared", "shared", False, set()),
        ("atp", "shared", True, {Feature.PREEMPTION}),
    ],
)
def test_the_programs_are_told_apart_by_what_they_have(
    program: str, mode: str, salted: bool, lacks: set[Feature]
) -> None:
    found = capabilities(described(program), "it")
    assert (found.mode, found.salted, found.lacks.keys()) == (mode, salted, lacks)
    assert (found.lanes, found.slots, found.jobs, found.max_members) == (32, 8192, 255, 32)


def test_more_counters_registers_and_tables_and_another_eviction_rule_offer_the_same(
    tmp_path: Path, shared: ProgramInfo
) -> None:
    path = copied(tmp_path, *COUNTING, EVICTION) / "shared.p4"
    edited = objects(p4info(program_of(path, LANES=32)))
    assert edited.tables.keys() - shared.tables.keys() == {"InaEgress.marking.watched"}
    assert edited.counters.keys() - shared.counters.keys() == {"InaIngress.ways"}
    assert edited.registers.keys() - shared.registers.keys() == {"InaIngress.last_psn"}
    assert capabilities(edited, "it") == capabilities(shared, "it")


def test_a_program_without_priorities_serves_jobs_that_want_none(tmp_path: Path) -> None:
    path = copied(tmp_path, WITHOUT_PRIORITY) / "shared.p4"
    found = capabilities(objects(p4info(program_of(path, LANES=32))), "the program mine.p4")
    assert found.shared
    found.require(Feature.MOVES)
    with pytest.raises(ProgramMismatch) as refused:
        found.require(Feature.PREEMPTION)
    assert str(refused.value) == (
        "the program mine.p4 lacks register 'InaIngress.aggregator.slot_priority', which jobs with preemption"
        " need"
    )


def test_what_every_job_needs_is_named_each_by_its_name(shared: ProgramInfo) -> None:
    job = shared.tables[names.JOB]
    set_job = shared.actions[names.SET_JOB]

    def with_table(name: str, table: TableInfo) -> ProgramInfo:
        return replace(shared, tables={**shared.tables, name: table})

    cases = {
        "table 'InaIngress.uplink.uplink'": replace(shared, tables=without(shared.tables, names.UPLINK)),
        "counter 'InaIngress.outcomes'": replace(shared, counters=without(shared.counters, names.OUTCOMES)),
        "register 'InaIngress.aggregator.slot_psn'": replace(
            shared, registers=without(shared.registers, names.SLOT_REGISTER)
        ),
        "register 'InaIngress.aggregator.lanes.lane_0'": replace(
            shared,
            registers={
                name: size for name, size in shared.registers.items() if names.LANE_REGISTERS not in name
            },
        ),
        "match field 'hdr.ina.job' of table 'InaIngress.admission.job'": with_table(
            names.JOB, replace(job, keys={})
        ),
        "match field 'hdr.ina.job' of table 'InaIngress.admission.job' of kind exact or optional (it"
        " is lpm)": (with_table(names.JOB, replace(job, keys={names.JOB_KEY: "lpm"}))),
        "a table 'InaIngress.admission.job' without match field 'hdr.ina.node', for which the controller"
        " has no value": with_table(names.JOB, replace(job, keys={**job.keys, "hdr.ina.node": "exact"})),
        "action 'InaIngress.admission.set_job' in table 'InaIngress.admission.job'": with_table(
            names.JOB, replace(job, actions=frozenset({names.NO_ACTION}))
        ),
        "parameter 'window' of action 'InaIngress.admission.set_job'": replace(
            shared, actions={**shared.actions, names.SET_JOB: without(set_job, "window")}
        ),
        "an action 'InaIngress.admission.set_job' without parameter 'weight', for which the controller has no"
        " value": replace(shared, actions={**shared.actions, names.SET_JOB: {**set_job, "weight": 8}}),
    }
    for lacking, program in cases.items():
        with pytest.raises(ProgramMismatch) as refused:
            capabilities(program, "the program mine.p4")
        said = f"the program mine.p4 is not one for aggregation: it lacks {lacking}"
        assert str(refused.value) == said


def test_a_program_that_wants_lanes_in_all_contributions_lacks_what_needs_none(shared: ProgramInfo) -> None:
    program = replace(shared, tables=without(shared.tables, names.LANE_WORK))
    assert capabilities(program, "it").lacks == {Feature.SHARDS: f"table '{names.LANE_WORK}'"}


def test_of_much_that_is_missing_some_is_named() -> None:
    with pytest.raises(ProgramMismatch, match=r"it lacks table .*job', table .*uplink', .* and 3 more$"):
        capabilities(ProgramInfo({}, {}, {}, {}), "the program fwd.p4")


def test_a_shared_program_whose_jobs_cannot_move_is_shared(shared: ProgramInfo) -> None:
    program = replace(shared, tables=without(shared.tables, names.CHANGE))
    found = capabilities(program, "it")
    assert found.shared
    assert found.lacks == {Feature.MOVES: f"table '{names.CHANGE}'"}


# ---------------------------------------------------------------------------
# Rows by name to P4Runtime and back, over the P4Info of the real program.


@pytest.fixture(scope="module")
def codec(bundle: ProgramBundle) -> Codec:
    return Codec(bundle.p4info)


def bits(width: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << width) - 1)


ROWS = st.one_of(
    st.builds(
        lambda job, port, bitmap, node: TableEntry(
            names.MEMBER,
            {names.JOB_KEY: job, names.INGRESS_PORT: port},
            names.SET_MEMBER,
            {"bitmap": bitmap, "first_node": node, "node_count": 1},
        ),
        bits(16),
        bits(9),
        bits(32),
        bits(16),
    ),
    st.builds(
        lambda value, length, port: TableEntry(
            names.ROUTES,
            {names.ROUTES_KEY: Lpm(value >> (32 - length) << (32 - length), length)},
            names.ROUTE,
            {"port": port, "src": 1, "dst": 2**48 - 1},
        ),
        bits(32),
        st.integers(1, 32),
        bits(9),
    ),
    st.builds(MulticastGroup, st.integers(1, 65535), st.lists(st.tuples(bits(9), bits(16))).map(tuple)),
    st.builds(CounterCell, st.just(names.OUTCOMES), bits(13), bits(62), bits(62)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_what_is_encoded_decodes_to_the_same(codec: Codec, row: Entry) -> None:
    assert codec.decode(codec.encode(row)) == row


def test_ternary_and_range_and_optional_matches() -> None:
    info = p4info_pb2.P4Info()
    table = info.tables.add(preamble={"id": 1, "name": "t"})
    for i, kind in enumerate(("TERNARY", "RANGE", "OPTIONAL"), 1):
        table.match_fields.add(id=i, name=kind, bitwidth=16, match_type=kind)
    info.actions.add(preamble={"id": 2, "name": "a"})
    row = TableEntry("t", {"TERNARY": Ternary(1, 3), "RANGE": Range(0, 9), "OPTIONAL": 4}, "a", priority=7)
    entity = Codec(info).encode(row)
    assert entity.table_entry.match[2].optional.value == b"\4"
    assert Codec(info).decode(entity) == row


def test_ports_as_bytes_are_understood(codec: Codec) -> None:
    group = p4.MulticastGroupEntry(multicast_group_id=1, replicas=[p4.Replica(port=b"\1\2", instance=3)])
    entry = p4.PacketReplicationEngineEntry(multicast_group_entry=group)
    assert codec.decode(p4.Entity(packet_replication_engine_entry=entry)) == MulticastGroup(1, ((258, 3),))


def test_entities_without_a_row_are_left_out(codec: Codec) -> None:
    session = p4.PacketReplicationEngineEntry(clone_session_entry=p4.CloneSessionEntry(session_id=1))
    assert codec.decode(p4.Entity(packet_replication_engine_entry=session)) is None
    assert codec.decode(p4.Entity(meter_entry=p4.MeterEntry())) is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            TableEntry("InaIngress.admission.jobs", {}, "x"),
            r"no table '.*jobs'; did you mean \w+\.admission\.job",
        ),
        (
            TableEntry(names.JOB, {"hdr.ina.jobb": 1}, names.SET_JOB),
            r"no match field of InaIngress\.admission\.job 'hdr\.ina\.jobb'; did you mean hdr\.ina\.job",
        ),
        (TableEntry(names.JOB, {}, "set_job"), r"no action 'set_job'"),
        (
            TableEntry(names.JOB, {}, names.SET_JOB, {"row": 1}),
            r"no parameter of InaIngress\.admission\.set_job 'row'",
        ),
        (CounterCell("outcome", 1), "no counter 'outcome'"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(codec: Codec, row: Entry, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        codec.encode(row)


@pytest.mark.parametrize(
    ("match", "params", "complaint"),
    [
        (
            {"hdr.ethernet.dst": "02:00:00:00:00:01"},
            {"port": 1},
            "match field 'hdr.ethernet.dst' of .*: '02:",
        ),
        (
            {"hdr.ethernet.dst": Ternary("2", 3)},
            {"port": 1},
            "match field 'hdr.ethernet.dst' of .*: '2': want",
        ),
        ({"hdr.ethernet.dst": 1}, {"port": "1"}, f"parameter 'port' of {names.FORWARD}: '1': want a number"),
        ({"hdr.ethernet.dst": 1}, {"port": -1}, "-1: want a number, not less than 0"),
    ],
)
def test_a_value_that_is_no_number_is_named(
    codec: Codec, match: dict[str, object], params: dict[str, object], complaint: str
) -> None:
    """It was an AssertionError or an AttributeError, and neither said of which field."""
    with pytest.raises(ValueError, match=complaint):
        codec.encode(TableEntry(names.BRIDGE, match, names.FORWARD, params))  # type: ignore[arg-type]
