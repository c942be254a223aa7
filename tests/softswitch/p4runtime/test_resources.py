"""Meters, registers, digests, idle times and counters of defaults, in both back ends."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4src.messages import p4data_pb2
from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import compile_source, p4info, preprocess_file
from softswitch.engine.build import load
from softswitch.engine.cache import compile_once
from softswitch.engine.meters import GREEN, RED, YELLOW, MeterRates
from softswitch.engine.pipeline import Copy, Pipeline
from softswitch.p4runtime import cells, digests, tables
from softswitch.p4runtime.errors import InvalidArgument, OutOfRange, RequestError, Unimplemented
from softswitch.p4runtime.state import Backend, Bundle, Loading, Subscription, prepare
from tests import effort

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


@pytest.fixture(scope="module")
def text() -> str:
    return preprocess_file(Path(__file__).with_name("resources.p4"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["interpreter", "compiled"])
def bundle(request: pytest.FixtureRequest, text: str, clock: Clock) -> Bundle:
    backend: Backend = request.param
    info = p4info(compile_once(text))
    config = p4.ForwardingPipelineConfig(p4info=info, p4_device_config=text.encode())
    return prepare(config, Loading(backend=backend), now_us=clock)


def send(pipeline: Pipeline, key: int, now_us: int = 0, length: int = 4) -> bytes:
    """Send a frame through the pipeline; return what leaves."""
    frame = bytes([key, 9, 0, 0]).ljust(length, b"\0")
    packet, _ = pipeline.ingress(frame, 3, now_us)
    out, _ = pipeline.egress(packet, Copy(now_us=now_us))
    assert out is not None
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
    assert colour(bundle, 0x81, 51_000, 100) == YELLOW  # 51 ms at 1000 bytes/s: 50 more to spare
    assert colour(bundle, 0x81, 1_002_000, 100) == GREEN  # a second at 100 bytes/s
    assert colour(bundle, 0x82, 1_002_000, 9000) == GREEN  # another cell
    assert colour(bundle, 0x87, 1_002_000, 9000) == GREEN  # beyond the end
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
    tables.write(bundle, MODIFY, entry(bundle, 7, 6))  # an action alone changes nothing else
    assert colour(bundle, 7, 0) == RED


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


def _pipelines() -> list[Pipeline]:
    program = compile_once(preprocess_file(Path(__file__).with_name("resources.p4")))
    return [load(program, backend="interpreter"), load(program, backend="compiled")]


_BOTH = _pipelines()
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
    digests.write(bundle, INSERT, message)
    assert list(digests.read(bundle, p4.DigestEntry())) == [message]
    return digest.id


def test_digests_come_in_lists_with_what_the_program_sent(bundle: Bundle, clock: Clock) -> None:
    id_ = subscribe(bundle, max_list_size=2, max_timeout_ns=1_000_000)
    for key in (0x11, 0x12, 0x13):
        send(bundle.pipeline, key)
    (message,) = digests.look(bundle)
    assert (message.digest.digest_id, message.digest.list_id, len(message.digest.data)) == (id_, 1, 2)
    port, probe, problem = message.digest.data[0].struct.members
    assert port.bitstring == b"\3"
    assert probe.header.bitstrings == [b"\x11", b"\0", b"\0"]
    assert problem.error == "NoError"
    assert list(digests.look(bundle)) == []
    clock.us += 1000
    (message,) = digests.look(bundle)
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
    subscription.sent.pop(sent.list_id)  # acknowledged
    subscription.offer(two, 60)
    assert [list(s.data) for s in subscription.due(60)] == [[two]]
    assert list(subscription.due(100)) == []
    subscription.offer(one, 100)  # the first list's time is over
    assert [list(s.data) for s in subscription.due(100)] == [[one]]


def test_idle_entries_are_told_once_after_each_hit(bundle: Bundle, clock: Clock) -> None:
    clock.us = 1000
    tables.write(bundle, INSERT, entry(bundle, 7, idle_timeout_ns=2_000_000))
    assert list(digests.look(bundle)) == []
    clock.us = 2500
    send(bundle.pipeline, 7, 2500)
    (read,) = tables.read(bundle, entry(bundle, 7, **EVERYTHING))
    assert (read.idle_timeout_ns, read.time_since_last_hit.elapsed_ns) == (2_000_000, 0)
    clock.us = 4499
    assert list(digests.look(bundle)) == []
    clock.us = 4500
    (message,) = digests.look(bundle)
    (told,) = message.idle_timeout_notification.table_entry
    assert (told.match[0].ternary.value, told.priority, told.idle_timeout_ns) == (b"\7", 1, 2_000_000)
    clock.us = 9000
    assert list(digests.look(bundle)) == []
    send(bundle.pipeline, 7, 9000)
    clock.us = 11_000
    assert len(list(digests.look(bundle))) == 1
    tables.write(bundle, DELETE, entry(bundle, 7))
    assert digests.interval_s(bundle) is None


def test_what_only_such_tables_have_is_refused_elsewhere(bundle: Bundle) -> None:
    with pytest.raises(InvalidArgument, match="0 \\(never\\) or more"):
        tables.write(bundle, INSERT, entry(bundle, 1, idle_timeout_ns=-1))
    with pytest.raises(InvalidArgument, match="cannot be idle"):
        tables.write(bundle, MODIFY, entry(bundle, None, idle_timeout_ns=1))
    with pytest.raises(Unimplemented, match="read, not written"):
        tables.write(bundle, INSERT, entry(bundle, 1, meter_counter_data=p4.MeterCounterData()))
    with pytest.raises(InvalidArgument, match="counters start at 0; got -1 packets"):
        tables.write(bundle, INSERT, entry(bundle, 1, counter_data=p4.CounterData(packet_count=-1)))
    assert list(tables.read(bundle, p4.TableEntry())) == []  # nor has any left its entry behind
    assert list(cells.read_counters(bundle, p4.CounterEntry())) == []


def test_p4info_tells_of_all_of_it(text: str) -> None:
    info = p4info(compile_source(text))
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
