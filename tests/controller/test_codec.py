"""Rows by name to P4Runtime and back, over the P4Info of the real program."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller import ProgramBundle
from controller.errors import UnknownName
from controller.p4runtime_shim.codec import Codec
from controller.switches import names
from controller.switches.target import CounterCell, Entry, Lpm, MulticastGroup, Range, TableEntry, Ternary
from p4src.messages import p4info_pb2
from p4src.messages import p4runtime_pb2 as p4


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
