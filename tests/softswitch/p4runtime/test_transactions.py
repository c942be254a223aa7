"""Batches that are all there or not at all, and programs that take over what was written to another."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from p4src.messages import p4runtime_pb2 as p4
from softswitch.engine.switch import Switch
from tests.softswitch.p4runtime.clients import Client, Names, Source, compiled, config, errors, exact, refused
from tests.softswitch.p4runtime.test_service import group

ALL_OR_NONE = [p4.WriteRequest.ROLLBACK_ON_ERROR, p4.WriteRequest.DATAPLANE_ATOMIC]


def state(client: Client, names: Names) -> list[Any]:
    """Everything that can be written, without its order."""
    whole = p4.TableEntry(counter_data=p4.CounterData())
    found = client.read(
        p4.Entity(table_entry=whole),
        p4.Entity(counter_entry=p4.CounterEntry()),
        p4.Entity(
            packet_replication_engine_entry=p4.PacketReplicationEngineEntry(
                multicast_group_entry=p4.MulticastGroupEntry()
            )
        ),
        p4.Entity(
            table_entry=p4.TableEntry(
                table_id=names.tables["exact_table"].preamble.id, is_default_action=True
            )
        ),
    )
    return sorted(found, key=lambda entity: entity.SerializeToString(deterministic=True))


@pytest.fixture
def filled(client: Client, names: Names) -> Client:
    drop = names.action("drop")
    counted = p4.CounterData(packet_count=3, byte_count=30)
    entry = names.entry("exact_table", exact(1), action=drop, metadata=b"m", counter_data=counted)
    client.write("INSERT", entry, names.entry("exact_table", exact(2), action=drop), group(1, (1, 1), (2, 1)))
    default = names.entry("exact_table", action=drop, metadata=b"d", is_default_action=True)
    client.write("MODIFY", names.cell("seen", 3, packet_count=7), default)
    return client


@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_a_failed_batch_leaves_everything_as_it_was(filled: Client, names: Names, atomicity: int) -> None:
    before = state(filled, names)
    send = names.action("send", b"\2")
    updates = [
        ("INSERT", names.entry("exact_table", exact(9), action=send)),
        ("MODIFY", names.entry("exact_table", exact(1), action=send)),
        ("MODIFY", names.entry("exact_table", exact(1), action=names.action("send", b"\3"))),
        ("DELETE", names.entry("exact_table", exact(2))),
        ("INSERT", names.entry("exact_table", exact(2), action=send)),
        ("MODIFY", names.entry("exact_table", action=send, is_default_action=True)),
        ("MODIFY", names.cell("seen", None, packet_count=1)),
        ("MODIFY", group(1, (3, 1))),
        ("INSERT", group(2, (3, 1))),
        ("DELETE", group(1)),
        ("DELETE", names.entry("exact_table", exact(7))),
        ("INSERT", names.entry("exact_table", exact(8), action=send)),
    ]
    with pytest.raises(grpc.RpcError) as error:
        filled.write_updates(updates, atomicity=atomicity)
    codes = [code for code, _ in errors(error.value)]
    assert codes == ["ABORTED"] * 10 + ["NOT_FOUND", "ABORTED"]
    assert "update 11 of the batch failed" in errors(error.value)[0][1]
    assert state(filled, names) == before
    filled.write_updates(updates[:3], atomicity=atomicity)
    assert len(filled.read(names.entry("exact_table"))) == 3


def test_a_program_takes_over_what_the_one_before_held(
    filled: Client, names: Names, source: Source, switch: Switch
) -> None:
    before = state(filled, names)
    bigger = source.text.replace("action drop() {", "action drop() { hdr.probe.mark = 1;").replace(
        "counters = exact_hits;", "counters = exact_hits; entries = { 1: drop(); 9: drop(); }"
    )
    assert bigger.count("mark = 1;") == bigger.count("9: drop") == 1
    filled.configure("RECONCILE_AND_COMMIT", config(compiled(bigger)))
    assert state(filled, names) == before
    assert switch.multicast_groups() == {1: [(1, 1), (2, 1)]}


def test_a_program_that_cannot_take_it_over_is_refused_and_the_old_one_stays(
    filled: Client, names: Names, source: Source, connect: Callable[..., Any]
) -> None:
    before = state(filled, names)
    other = source.text.replace("hdr.probe.exact_key: exact", "hdr.probe.lpm_key: exact")
    narrower = source.text.replace("hdr.probe.exact_key: exact", "hdr.probe.mark: ternary")
    assert source.text not in (other, narrower)
    kept = config(compiled(other))
    filled.configure("VERIFY", kept)
    with refused(grpc.StatusCode.INVALID_ARGUMENT) as error:
        filled.configure("RECONCILE_AND_COMMIT", config(compiled(narrower)))
    assert "an entry cannot be kept" in error.value.details()
    assert state(filled, names) == before


@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
@pytest.mark.parametrize("kind", ["MODIFY", "DELETE", "UNSPECIFIED"])
def test_an_entry_of_a_table_without_key_fails_its_batch_in_words(
    filled: Client, names: Names, kind: str, atomicity: int
) -> None:
    entry = names.entry("keyless_table", action=names.action("drop"))
    with pytest.raises(grpc.RpcError) as caught:
        filled.write(kind, entry, atomicity=atomicity)
    assert "has no key, so it can have only a default entry" in caught.value.details()
