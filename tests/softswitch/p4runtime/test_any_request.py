"""Whatever a request holds, it is carried out or refused in words; nothing else escapes."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4src.messages import p4runtime_pb2 as p4
from softswitch.engine.switch import Switch
from softswitch.p4runtime import entities
from softswitch.p4runtime.errors import RequestError
from softswitch.p4runtime.state import Device
from tests.softswitch.p4runtime.clients import Source


@pytest.fixture(scope="module")
def device(source: Source) -> Iterator[Device]:
    with Switch({}) as switch:
        device = Device(switch)
        device.preload(source.text)
        yield device


def ids(source: Source) -> st.SearchStrategy[int]:
    info = source.info
    known = [o.preamble.id for kind in (info.tables, info.actions, info.counters) for o in kind]
    return st.sampled_from([*known, *known, 0, 1, 2**32 - 1])


values = st.one_of(st.binary(max_size=5), st.sampled_from([b"\0", b"\1", b"\2"]))
small = st.integers(0, 4)
replicas = st.lists(st.builds(p4.Replica, egress_port=st.integers(0, 600), instance=small), max_size=3)
data = st.none() | st.builds(
    p4.CounterData, packet_count=st.integers(-1, 2**63 - 1), byte_count=st.integers(-1, 2**63 - 1)
)


@st.composite
def matches(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["exact", "lpm", "ternary", "range", "optional", None]))
    match = p4.FieldMatch(field_id=draw(st.integers(0, 4)))
    match kind:
        case "exact" | "optional":
            getattr(match, kind).value = draw(values)
        case "lpm":
            match.lpm.value = draw(values)
            match.lpm.prefix_len = draw(st.integers(-1, 40))
        case "ternary":
            match.ternary.value, match.ternary.mask = draw(values), draw(values)
        case "range":
            match.range.low, match.range.high = draw(values), draw(values)
    return match


@st.composite
def table_entries(draw: st.DrawFn, source: Source) -> Any:
    message = p4.TableEntry(
        table_id=draw(ids(source)),
        match=draw(st.lists(matches(), max_size=3)),
        priority=draw(st.integers(-1, 3)),
        is_default_action=draw(st.booleans()),
        metadata=draw(st.binary(max_size=2)),
        counter_data=draw(data),
    )
    if draw(st.booleans()):
        message.action.action.action_id = draw(ids(source))
        for i in range(draw(small)):
            message.action.action.params.add(param_id=i, value=draw(values))
    return message


@st.composite
def any_entity(draw: st.DrawFn, source: Source) -> Any:
    match draw(st.integers(0, 5)):
        case 0 | 1:
            return p4.Entity(table_entry=draw(table_entries(source)))
        case 2:
            entry = p4.DirectCounterEntry(table_entry=draw(table_entries(source)), data=draw(data))
            return p4.Entity(direct_counter_entry=entry)
        case 3:
            counter = p4.CounterEntry(counter_id=draw(ids(source)), data=draw(data))
            if draw(st.booleans()):
                counter.index.index = draw(st.integers(-1, 20))
            return p4.Entity(counter_entry=counter)
        case 4:
            group = p4.MulticastGroupEntry(multicast_group_id=draw(small), replicas=draw(replicas))
            entry = p4.PacketReplicationEngineEntry(multicast_group_entry=group)
            return p4.Entity(packet_replication_engine_entry=entry)
        case _:
            session = p4.CloneSessionEntry(
                session_id=draw(small),
                replicas=draw(replicas),
                class_of_service=draw(st.integers(0, 9)),
                packet_length_bytes=draw(st.integers(-1, 2**31 - 1)),
            )
            entry = p4.PacketReplicationEngineEntry(clone_session_entry=session)
            return p4.Entity(packet_replication_engine_entry=entry)


@given(st.data())
def test_any_request_is_carried_out_or_refused(device: Device, source: Source, data: st.DataObject) -> None:
    entity = data.draw(any_entity(source))
    update = p4.Update(type=data.draw(st.integers(0, 3)), entity=entity)
    with contextlib.suppress(RequestError):
        entities.write(device, update)
    with contextlib.suppress(RequestError):
        entities.read(device, entity)
