"""Meters, registers, digests, idle times and counters of defaults, in both back ends.

Value sets over P4Runtime: members replaced at once, matched by the parser in both back ends.

What the service sends of its own accord, to whom, and what roles may do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from p4src.messages import p4data_pb2
from p4src.messages import p4runtime_pb2 as p4
from softswitch.engine.build import load
from softswitch.engine.cache import compile_once
from softswitch.engine.pipeline import GREEN, RED, YELLOW, Copy, MeterRates, Pipeline
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, cells, entities, roles, serve, tables
from softswitch.p4runtime.errors import (
    InvalidArgument,
    NotFound,
    OutOfRange,
    RequestError,
    ResourceExhausted,
    Unimplemented,
)
from softswitch.p4runtime.state import Backend, Bundle, Loading, Subscription, prepare
from tests import effort
from tests.softswitch.lowering import source
from tests.softswitch.p4runtime.clients import (
    Client,
    Stream,
    compiled,
    config,
    errors,
    exact,
    primary,
    refused,
    ternary,
)

INSERT, MODIFY, DELETE = p4.Update.INSERT, p4.Update.MODIFY, p4.Update.DELETE
EVERYTHING: dict[str, Any] = {
    "counter_data": p4.CounterData(),
    "meter_config": p4.MeterConfig(),
    "meter_counter_data": p4.MeterCounterData(),
    "time_since_last_hit": p4.TableEntry.IdleTimeout(),
}


class Clock:
    """The time of packets and of idle entries, microseconds."""

    us = 0

    def __call__(self) -> int:
        return self.us


RESOURCES = compiled(Path(__file__).with_name("resources.p4").read_text())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["interpreter", "compiled"])
def bundle(request: pytest.FixtureRequest, clock: Clock) -> Bundle:
    return prepare(config(RESOURCES), Loading(backend=request.param), now_us=clock)


def send(pipeline: Pipeline, key: int, now_us: int = 0, length: int = 4) -> bytes:
    """Send a frame through the pipeline; return what leaves."""
    frame = bytes([key, 9, 0, 0]).ljust(length, b"\0")
    packet, _ = pipeline.ingress(frame, 3, now_us)
    out, _ = pipeline.egress(packet, Copy(now_us=now_us))
    return out


def colour(bundle: Bundle, key: int, now_us: int, length: int = 4) -> int:
    return send(bundle.pipeline, key, now_us, length)[1]


def entry(bundle: Bundle, key: int | None, port: int = 5, **fields: Any) -> Any:
    """An entry of the table; None: its default."""
    schema = bundle.schema
    table = next(t for t in schema.tables.values())
    message = p4.TableEntry(table_id=table.id, **fields)
    if key is None:
        message.is_default_action = True
        return message
    message.priority = 1
    message.match.add(field_id=1).ternary.value = bytes([key])
    message.match[0].ternary.mask = b"\xff"
    action = message.action.action
    action.action_id = schema.action_named("MyIngress.tell_and").id
    action.params.add(param_id=1, value=bytes([port]))
    return message


def test_an_array_of_meters_marks_packets_by_their_bytes(bundle: Bundle) -> None:
    assert [colour(bundle, 0x81, 0, 100) for _ in range(3)] == [GREEN] * 3
    meter = next(iter(bundle.schema.meters.values()))
    config = p4.MeterConfig(cir=100, cburst=100, pir=1000, pburst=250)
    written = p4.MeterEntry(meter_id=meter.id, index=p4.Index(index=1), config=config)
    cells.write_meter(bundle, MODIFY, written)
    assert list(cells.read_meters(bundle, p4.MeterEntry(meter_id=meter.id, index=p4.Index(index=1)))) == [
        written
    ]
    assert [colour(bundle, 0x81, 10, 100) for _ in range(3)] == [GREEN, YELLOW, RED]
    for cell, now_us, size, expected in (
        (0x81, 51_000, 100, YELLOW),  # 51 ms at 1000 bytes/s: 50 more to spare
        (0x81, 1_002_000, 100, GREEN),  # a second at 100 bytes/s
        (0x82, 1_002_000, 9000, GREEN),  # another cell
        (0x87, 1_002_000, 9000, GREEN),  # beyond the end
    ):
        assert colour(bundle, cell, now_us, size) == expected
    (found,) = cells.read_meters(
        bundle,
        p4.MeterEntry(meter_id=meter.id, index=p4.Index(index=1), counter_data=p4.MeterCounterData()),
    )
    seen = {name: getattr(found.counter_data, name) for name in ("green", "yellow", "red")}
    assert {name: (c.packet_count, c.byte_count) for name, c in seen.items()} == {
        "green": (5, 500),
        "yellow": (2, 200),
        "red": (1, 100),
    }
    cells.write_meter(bundle, MODIFY, p4.MeterEntry(meter_id=meter.id))
    assert not any(m.HasField("config") for m in cells.read_meters(bundle, p4.MeterEntry(meter_id=0)))


def test_direct_meters_and_counters_of_an_entry_and_of_the_default(bundle: Bundle) -> None:
    one = p4.MeterConfig(cir=1, cburst=1, pir=1, pburst=2)
    tables.write(bundle, INSERT, entry(bundle, 7, meter_config=one))
    assert [colour(bundle, 7, 0) for _ in range(3)] == [GREEN, YELLOW, RED]
    assert [colour(bundle, 8, 0) for _ in range(2)] == [GREEN, GREEN]
    default = p4.DirectMeterEntry(table_entry=entry(bundle, None), config=one)
    tables.write_direct_meter(bundle, MODIFY, default)
    assert [colour(bundle, 8, 0) for _ in range(3)] == [GREEN, YELLOW, RED]
    assert list(tables.read_direct_meter(bundle, default)) == [default]
    hits = p4.DirectCounterEntry(table_entry=entry(bundle, None))
    (found,) = tables.read_direct_counter(bundle, hits)
    assert (found.data.packet_count, found.data.byte_count) == (5, 20)
    (read,) = tables.read(bundle, entry(bundle, 7, **EVERYTHING))
    assert read.meter_config == one
    assert read.counter_data.packet_count == 3
    assert [getattr(read.meter_counter_data, c).packet_count for c in ("green", "yellow", "red")] == [1, 1, 1]
    for key in (7, None):  # an action, or a reset, removes the rates and keeps the counts
        tables.write(bundle, MODIFY, entry(bundle, key, 6))
        (kept,) = tables.read(bundle, entry(bundle, key, **EVERYTHING))
        assert (kept.HasField("meter_config"), kept.counter_data.packet_count > 2) == (False, True)
        assert colour(bundle, key or 8, 0) == GREEN
    tables.write(bundle, DELETE, read)  # fields other than the key are ignored
    assert list(tables.read(bundle, p4.TableEntry())) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (p4.MeterConfig(cburst=-1), "^cburst is -1; rates and bursts are 0 or more$"),
        (p4.MeterConfig(cir=2, pir=1), "above pir"),
        (p4.MeterConfig(eburst=1), "eburst"),
    ],
)
def test_bad_meter_configurations_are_refused(bundle: Bundle, config: Any, message: str) -> None:
    meter = next(iter(bundle.schema.meters.values()))
    with pytest.raises(InvalidArgument, match=message):
        cells.write_meter(bundle, MODIFY, p4.MeterEntry(meter_id=meter.id, config=config))
    with pytest.raises(InvalidArgument, match=message):
        tables.write(bundle, INSERT, entry(bundle, 1, meter_config=config))
    assert list(tables.read(bundle, p4.TableEntry())) == []
    with pytest.raises(OutOfRange):
        cells.write_meter(bundle, MODIFY, p4.MeterEntry(meter_id=meter.id, index=p4.Index(index=4)))
    counted = p4.MeterEntry(meter_id=meter.id, counter_data=p4.MeterCounterData())
    with pytest.raises(Unimplemented):
        cells.write_meter(bundle, MODIFY, counted)


rates = st.builds(
    MeterRates,
    cir=st.integers(0, 3000),
    cburst=st.integers(0, 9),
    pir=st.integers(0, 9000),
    pburst=st.integers(0, 9),
)


@settings(max_examples=effort.cases(40), deadline=None)
@given(rates, st.lists(st.integers(0, 2000), min_size=1, max_size=30))
def test_both_back_ends_give_the_same_colours(rates: MeterRates, gaps_us: list[int]) -> None:
    seen = []
    for pipeline in _BOTH:
        pipeline.configure_meter("MyIngress.by_bytes", 1, None)
        pipeline.configure_meter("MyIngress.by_bytes", 1, rates)
        base = _TIME[0]
        times = [base + sum(gaps_us[: n + 1]) for n in range(len(gaps_us))]
        seen.append([send(pipeline, 0x81, time_us)[1] for time_us in times])
    _TIME[0] = times[-1]
    assert seen[0] == seen[1]


_BACKENDS: tuple[Backend, ...] = ("interpreter", "compiled")
_BOTH = [load(compile_once(RESOURCES.text), backend=backend) for backend in _BACKENDS]
_TIME = [0]


def test_registers_are_read_and_written(bundle: Bundle) -> None:
    send(bundle.pipeline, 2)
    send(bundle.pipeline, 2)
    by_name = {register.name: register for register in bundle.schema.registers.values()}
    array, plain = by_name["MyIngress.cells"], by_name["MyIngress.plain"]
    request = p4.RegisterEntry(register_id=array.id, index=p4.Index(index=2))
    (found,) = cells.read_registers(bundle, request)
    last, difference, seen = found.data.struct.members
    assert (last.bitstring, difference.bitstring, seen.bool) == (b"\2", b"\xfd", True)
    difference.bitstring = b"\x05"
    cells.write_register(bundle, MODIFY, found)
    assert list(cells.read_registers(bundle, request)) == [found]
    assert len(list(cells.read_registers(bundle, p4.RegisterEntry()))) == 8
    number = p4.RegisterEntry(register_id=plain.id, data=p4data_pb2.P4Data(bitstring=b"\x11"))
    cells.write_register(bundle, MODIFY, number)  # all cells
    assert [bundle.pipeline.read_register(plain.name, i) for i in range(4)] == [0x11] * 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (p4data_pb2.P4Data(bool=True), "takes a bitstring, not bool"),
        (p4data_pb2.P4Data(bitstring=b"\1\0"), "must fit"),
        (p4data_pb2.P4Data(), "not nothing"),
    ],
)
def test_bad_register_writes_are_refused(bundle: Bundle, data: Any, message: str) -> None:
    plain = next(r for r in bundle.schema.registers.values() if r.name.endswith("plain"))
    with pytest.raises(InvalidArgument, match=message):
        cells.write_register(bundle, MODIFY, p4.RegisterEntry(register_id=plain.id, data=data))
    with pytest.raises(RequestError, match="only be modified"):
        cells.write_register(bundle, INSERT, p4.RegisterEntry(register_id=plain.id, data=data))


def subscribe(bundle: Bundle, **config: int) -> int:
    """Subscribe to the program's one digest; return its id."""
    (digest,) = bundle.schema.digests.values()
    message = p4.DigestEntry(digest_id=digest.id, config=p4.DigestEntry.Config(**config))
    entities.write_digest(bundle, INSERT, message)
    assert list(entities.read_digest(bundle, p4.DigestEntry())) == [message]
    return digest.id


def test_digests_come_in_lists_with_what_the_program_sent(bundle: Bundle, clock: Clock) -> None:
    id_ = subscribe(bundle, max_list_size=2, max_timeout_ns=1_000_000)
    for key in (0x11, 0x12, 0x13):
        send(bundle.pipeline, key)
    (message,) = entities.look(bundle)
    assert (message.digest.digest_id, message.digest.list_id, len(message.digest.data)) == (id_, 1, 2)
    port, probe, problem = message.digest.data[0].struct.members
    assert port.bitstring == b"\3"
    assert probe.header.bitstrings == [b"\x11", b"\0", b"\0"]
    assert problem.error == "NoError"
    assert list(entities.look(bundle)) == []
    clock.us += 1000
    (message,) = entities.look(bundle)
    assert (message.digest.list_id, len(message.digest.data)) == (2, 1)


def test_digests_that_the_controller_is_about_to_know_are_not_sent_again() -> None:
    config = p4.DigestEntry.Config(ack_timeout_ns=100)
    subscription = Subscription(p4.DigestEntry(digest_id=1, config=config))
    one, two = (p4data_pb2.P4Data(bitstring=bytes([n])) for n in (1, 2))
    subscription.offer(one, 0)
    subscription.offer(one, 0)
    (sent,) = subscription.due(0)
    assert list(sent.data) == [one]
    subscription.offer(one, 50)
    subscription.offer(two, 50)
    (sent,) = subscription.due(50)
    assert list(sent.data) == [two]
    subscription.forget(sent.list_id)  # acknowledged
    subscription.offer(two, 60)
    assert [list(s.data) for s in subscription.due(60)] == [[two]]
    assert list(subscription.due(100)) == []
    subscription.offer(one, 100)  # the first list's time is over
    assert [list(s.data) for s in subscription.due(100)] == [[one]]
    subscription.entry.config.ack_timeout_ns = 0
    assert list(subscription.due(200)) == []
    for digest in (two, one, two):
        subscription.offer(digest, 200)
    assert [list(s.data) for s in subscription.due(200)] == [[two, one]], "distinct, if not acknowledged, too"


def test_idle_entries_are_told_once_per_timeout(bundle: Bundle, clock: Clock) -> None:
    clock.us = 1000
    tables.write(bundle, INSERT, entry(bundle, 7, idle_timeout_ns=2_000_000))
    assert list(entities.look(bundle)) == []
    clock.us = 2500
    send(bundle.pipeline, 7, 2500)
    (read,) = tables.read(bundle, entry(bundle, 7, **EVERYTHING))
    assert (read.idle_timeout_ns, read.time_since_last_hit.elapsed_ns) == (2_000_000, 0)
    clock.us = 4499
    assert list(entities.look(bundle)) == []
    clock.us = 4500
    (message,) = entities.look(bundle)
    (told,) = message.idle_timeout_notification.table_entry
    assert (told.match[0].ternary.value, told.priority, told.idle_timeout_ns) == (b"\7", 1, 2_000_000)
    for clock.us, count in ((6499, 0), (9000, 1), (10_999, 0), (11_000, 1)):
        assert len(list(entities.look(bundle))) == count
    send(bundle.pipeline, 7, 12_000)
    for clock.us, count in ((13_999, 0), (14_000, 1)):
        assert len(list(entities.look(bundle))) == count
    tables.write(bundle, DELETE, entry(bundle, 7))
    assert entities.interval_s(bundle) is None


@pytest.mark.parametrize(
    ("kind", "key", "fields", "error", "why"),
    [
        (INSERT, 1, {"idle_timeout_ns": -1}, InvalidArgument, "0 \\(never\\) or more"),
        (MODIFY, None, {"idle_timeout_ns": 1}, InvalidArgument, "cannot be idle"),
        (INSERT, 1, {"meter_counter_data": p4.MeterCounterData()}, Unimplemented, "read, not written"),
        (
            INSERT,
            1,
            {"counter_data": p4.CounterData(packet_count=-1)},
            InvalidArgument,
            "a counter must be 0 or more; got -1 packets",
        ),
    ],
    ids=["idle below 0", "idle default", "meter's counters", "packets below 0"],
)
def test_what_only_such_tables_have_is_refused_elsewhere(
    bundle: Bundle, kind: Any, key: int | None, fields: dict[str, Any], error: type[RequestError], why: str
) -> None:
    with pytest.raises(error, match=why):
        tables.write(bundle, kind, entry(bundle, key, **fields))
    assert list(tables.read(bundle, p4.TableEntry())) == []  # nor has it left its entry behind
    assert list(cells.read_counters(bundle, p4.CounterEntry())) == []


def test_p4info_tells_of_all_of_it() -> None:
    info = RESOURCES.info
    assert [(m.preamble.name, m.size) for m in info.meters] == [("MyIngress.by_bytes", 4)]
    (table,) = info.tables
    assert table.idle_timeout_behavior == table.NOTIFY_CONTROL
    assert list(table.direct_resource_ids) == [
        info.direct_counters[0].preamble.id,
        info.direct_meters[0].preamble.id,
    ]
    assert [d.type_spec.struct.name for d in info.digests] == ["learnt_t"]
    assert set(info.type_info.structs) == {"cell_t", "learnt_t"}
    assert [m.name for m in info.type_info.headers["probe_t"].members] == ["key", "colour", "value"]
    assert info.type_info.error.members[0] == "NoError"
    assert "MyIngress.helper" in {a.preamble.name for a in info.actions}  # in no table


PARSER = """
    value_set<bit<8>>(2) plain;
    value_set<pair_t>(4) pairs;
    state start { packet.extract(hdr.h); transition select(hdr.h.a) { plain: more; default: check; } }
    state check { transition select(hdr.h.a, hdr.h.b) { (1, 2): more; pairs: more; _: accept; } }
    state more { packet.extract(hdr.g); transition accept; }
"""
TEXT = source(
    "if (hdr.g.isValid()) { standard_metadata.egress_spec = 7; }",
    declarations="struct pair_t { @match(ternary) bit<8> x; bit<8> y; }",
    parser=PARSER,
)


@pytest.fixture(params=["interpreter", "compiled"])
def set_bundle(request: pytest.FixtureRequest) -> Bundle:
    return prepare(config(compiled(TEXT)), Loading(backend=request.param))


def set_id(set_bundle: Bundle, name: str) -> int:
    return next(v.id for v in set_bundle.schema.value_sets.values() if v.name == name)


def members(set_bundle: Bundle, name: str, *matches: Sequence[p4.FieldMatch]) -> Any:
    entry = p4.ValueSetEntry(value_set_id=set_id(set_bundle, name))
    for match in matches:
        entry.members.add().match.extend(match)
    return entry


def modify(set_bundle: Bundle, name: str, *matches: Sequence[p4.FieldMatch]) -> Any:
    """Give a set these members; return the message that did."""
    entry = members(set_bundle, name, *matches)
    tables.write_value_set(set_bundle, MODIFY, entry)
    return entry


def parsed_more(set_bundle: Bundle, a: int, b: int) -> bool:
    packet, verdict = set_bundle.pipeline.ingress(bytes([a, b, 0, 0, 9, 9, 9, 9]), 0)
    set_bundle.pipeline.egress(packet, Copy())
    return verdict.egress_spec == 7


def test_members_decide_the_transition(set_bundle: Bundle) -> None:
    assert not parsed_more(set_bundle, 5, 0)
    assert parsed_more(set_bundle, 1, 2)
    modify(set_bundle, "P.plain", [exact(5)], [exact(6)])
    assert parsed_more(set_bundle, 5, 0)
    assert parsed_more(set_bundle, 6, 0)
    assert not parsed_more(set_bundle, 7, 0)
    modify(set_bundle, "P.plain", [exact(7)])
    assert not parsed_more(set_bundle, 5, 0)
    assert parsed_more(set_bundle, 7, 0)
    given = modify(set_bundle, "P.pairs", [ternary(b"\x20", b"\xf0"), exact(3, field=2)])
    assert parsed_more(set_bundle, 0x2F, 3)
    assert not parsed_more(set_bundle, 0x2F, 4)
    assert list(
        tables.read_value_set(set_bundle, p4.ValueSetEntry(value_set_id=set_id(set_bundle, "P.pairs")))
    ) == [given]
    assert len(list(tables.read_value_set(set_bundle, p4.ValueSetEntry()))) == 2


@pytest.mark.parametrize(
    ("write", "error", "why"),
    [
        (
            lambda b: tables.write_value_set(b, INSERT, members(b, "P.plain")),
            InvalidArgument,
            "can only be modified",
        ),
        (
            lambda b: modify(b, "P.plain", *([exact(n)] for n in (1, 2, 3))),
            ResourceExhausted,
            "3 members for",
        ),
        (lambda b: modify(b, "P.plain", [exact(1)], [exact(1)]), InvalidArgument, "twice"),
        (
            lambda b: modify(b, "P.plain", [p4.FieldMatch(field_id=1, exact=p4.FieldMatch.Exact(value=b""))]),
            InvalidArgument,
            "match field 'value' is empty",  # in P4Info it has no name
        ),
        (
            lambda b: tables.write_value_set(b, MODIFY, p4.ValueSetEntry(value_set_id=1)),
            NotFound,
            "no value set has id",
        ),
    ],
    ids=["insert", "too many", "twice", "empty", "unknown"],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    set_bundle: Bundle, write: Callable[[Bundle], object], error: type[RequestError], why: str
) -> None:
    modify(set_bundle, "P.plain", [exact(7)])
    with pytest.raises(error, match=why):
        write(set_bundle)
    assert parsed_more(set_bundle, 7, 0)


def test_p4info_has_the_sets_and_no_table_of_theirs() -> None:
    info = compiled(TEXT).info
    assert [(v.preamble.name, v.size, [m.name for m in v.match]) for v in info.value_sets] == [
        ("P.plain", 2, [""]),
        ("P.pairs", 4, ["x", "y"]),
    ]
    assert not info.tables
    assert not [action for action in info.actions if "#" in action.preamble.name]


PROBE = bytes([9, 0, 0, 0])


@pytest.fixture
def told(switch: Switch) -> Iterator[Service]:
    with closing(serve(switch, source=RESOURCES.text)) as service:
        yield service


def test_digests_reach_the_controller_and_are_acknowledged(
    told: Service, switch: Switch, connect: Callable[[Service], Any]
) -> None:
    stub = connect(told)
    with primary(stub, 1) as stream:
        id_ = RESOURCES.info.digests[0].preamble.id
        config = p4.DigestEntry.Config(ack_timeout_ns=3600 * 10**9)
        subscription = p4.Entity(digest_entry=p4.DigestEntry(digest_id=id_, config=config))
        Client(stub, 1).write("INSERT", subscription)
        switch.inject(2, [PROBE, PROBE])
        digest = stream.receive().digest
        assert (digest.digest_id, digest.list_id, len(digest.data)) == (id_, 1, 1)
        assert digest.data[0].struct.members[0].bitstring == b"\2"
        stream.send(digest_ack=p4.DigestListAck(digest_id=id_, list_id=digest.list_id))
        stream.send(digest_ack=p4.DigestListAck(digest_id=7))  # none of the program's
        error = stream.receive().error
        assert (error.canonical_code, error.digest_list_ack.digest_list_ack.digest_id) == (3, 7)
        switch.inject(2, [PROBE])  # known, but acknowledged since
        assert stream.receive().digest.list_id == 2


def test_an_idle_entry_is_told(told: Service, connect: Callable[[Service], Any]) -> None:
    stub = connect(told)
    with primary(stub, 1) as stream:
        (table,) = RESOURCES.info.tables
        action = next(a for a in RESOURCES.info.actions if a.preamble.alias == "tell")
        entry = p4.TableEntry(table_id=table.preamble.id, priority=1, idle_timeout_ns=1_000_000)
        entry.match.add(field_id=1).ternary.value = b"\1"
        entry.match[0].ternary.mask = b"\1"
        entry.action.action.action_id = action.preamble.id
        Client(stub, 1).write("INSERT", p4.Entity(table_entry=entry))
        assert list(stream.receive().idle_timeout_notification.table_entry) == [entry]


def role_config(**fields: Any) -> any_pb2.Any:
    message = roles._message_class()(**fields)
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def become(stub: Any, role: str, config: any_pb2.Any | None) -> Stream:
    stream = Stream(stub)
    update = p4.MasterArbitrationUpdate(role=p4.Role(name=role, config=config))
    update.election_id.low = 1
    stream.send(arbitration=update)
    answer = stream.receive().arbitration
    assert (answer.status.code, answer.role) == (0, update.role)
    return stream


def test_a_role_writes_what_its_configuration_names(told: Service, connect: Callable[[Service], Any]) -> None:
    stub = connect(told)
    mine, plain = (r.preamble.id for r in RESOURCES.info.registers)
    stream = become(stub, "mine", role_config(exclusive_p4_ids=[mine]))
    update = p4.Update(
        type=p4.Update.MODIFY, entity=p4.Entity(register_entry=p4.RegisterEntry(register_id=plain))
    )
    write = p4.WriteRequest(role="mine", election_id=p4.Uint128(low=1), updates=[update])
    update.entity.register_entry.register_id = mine  # allowed, but without data
    write.updates.append(update)
    for atomicity, second in (
        (p4.WriteRequest.CONTINUE_ON_ERROR, "INVALID_ARGUMENT"),
        (p4.WriteRequest.ROLLBACK_ON_ERROR, "ABORTED"),
    ):
        write.atomicity = atomicity
        with pytest.raises(grpc.RpcError) as error:
            stub.Write(write)
        assert [code for code, _ in errors(error.value)] == ["PERMISSION_DENIED", second]
    program = p4.SetForwardingPipelineConfigRequest(
        role="mine", election_id=p4.Uint128(low=1), action="COMMIT"
    )
    with pytest.raises(grpc.RpcError, match="may not load programs"):
        stub.SetForwardingPipelineConfig(program)
    stream.end()


@pytest.mark.parametrize(
    ("role", "config", "message"),
    [
        ("", role_config(), "takes no configuration"),
        ("other", role_config(shared_p4_ids=[5]), "both claim 0x00000005"),
        ("other", any_pb2.Any(type_url="x/y.Z"), "x/y.Z; want stratum.P4RoleConfig"),
        ("other", any_pb2.Any(type_url="x/stratum.P4RoleConfig", value=b"\xff"), "is no stratum"),
    ],
)
def test_bad_role_configurations_end_the_stream(
    told: Service, connect: Callable[[Service], Any], role: str, config: any_pb2.Any, message: str
) -> None:
    stub = connect(told)
    first = become(stub, "first", role_config(exclusive_p4_ids=[5]))
    stream = Stream(stub)
    stream.send(arbitration=p4.MasterArbitrationUpdate(role=p4.Role(name=role, config=config)))
    with refused(grpc.StatusCode.INVALID_ARGUMENT, message):
        stream.receive()
    first.end()


def test_a_role_gets_the_packets_of_its_filter_and_the_notifications_of_its_ids() -> None:
    message = role_config(shared_p4_ids=[5], packet_in_filter={"metadata_id": 1, "value": b"\0\5"})
    decoded = roles.decode_role(p4.Role(name="any", config=message))
    assert decoded.packet_filter == (1, b"\5")
    for id_ in (5, 6):
        idle = p4.IdleTimeoutNotification(table_entry=[p4.TableEntry(table_id=id_)])
        assert decoded.hears(p4.StreamMessageResponse(idle_timeout_notification=idle)) == (id_ == 5)
        assert decoded.hears(p4.StreamMessageResponse(digest=p4.DigestList(digest_id=id_))) == (id_ == 5)
    packet = p4.PacketIn(metadata=[p4.PacketMetadata(metadata_id=1, value=b"\5")])
    assert not roles.RoleConfig().takes(packet)
    assert roles.RoleConfig(receives_packets=True).takes(packet)
    assert roles.RoleConfig(receives_packets=True, packet_filter=(1, b"\5")).takes(packet)
    assert not roles.RoleConfig(receives_packets=True, packet_filter=(1, b"\6")).takes(packet)
