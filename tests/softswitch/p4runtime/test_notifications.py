"""What the service sends of its own accord, to whom, and what roles may do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import p4info, preprocess_file
from softswitch.engine.cache import compile_once
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, roles, serve
from tests.softswitch.p4runtime.clients import Client, Source, Stream, errors

PROBE = bytes([9, 0, 0, 0])


@pytest.fixture(scope="module")
def resources() -> Source:
    text = preprocess_file(Path(__file__).with_name("resources.p4"))
    return Source(text, p4info(compile_once(text)))


@pytest.fixture
def told(switch: Switch, resources: Source) -> Iterator[Service]:
    service = serve(switch, source=resources.text)
    yield service
    service.close()


def test_digests_reach_the_controller_and_are_acknowledged(
    told: Service, switch: Switch, resources: Source, connect: Callable[[Service], Any]
) -> None:
    stub = connect(told)
    stream = Stream(stub)
    assert stream.arbitrate(1).status.code == 0
    id_ = resources.info.digests[0].preamble.id
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
    stream.end()


def test_an_idle_entry_is_told(told: Service, resources: Source, connect: Callable[[Service], Any]) -> None:
    stub = connect(told)
    stream = Stream(stub)
    stream.arbitrate(1)
    (table,) = resources.info.tables
    action = next(a for a in resources.info.actions if a.preamble.alias == "tell")
    entry = p4.TableEntry(table_id=table.preamble.id, priority=1, idle_timeout_ns=1_000_000)
    entry.match.add(field_id=1).ternary.value = b"\1"
    entry.match[0].ternary.mask = b"\1"
    entry.action.action.action_id = action.preamble.id
    Client(stub, 1).write("INSERT", p4.Entity(table_entry=entry))
    assert list(stream.receive().idle_timeout_notification.table_entry) == [entry]
    stream.end()


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
    assert stream.receive().arbitration.status.code == 0
    return stream


def test_a_role_writes_what_its_configuration_names(
    told: Service, switch: Switch, resources: Source, connect: Callable[[Service], Any]
) -> None:
    stub = connect(told)
    mine, plain = (r.preamble.id for r in resources.info.registers)
    stream = become(stub, "mine", role_config(exclusive_p4_ids=[mine]))
    update = p4.Update(
        type=p4.Update.MODIFY, entity=p4.Entity(register_entry=p4.RegisterEntry(register_id=plain))
    )
    write = p4.WriteRequest(role="mine", election_id=p4.Uint128(low=1), updates=[update])
    with pytest.raises(grpc.RpcError) as error:
        stub.Write(write)
    assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
    update.entity.register_entry.register_id = mine
    write.updates[0].CopyFrom(update)
    with pytest.raises(grpc.RpcError) as error:
        stub.Write(write)
    assert [code for code, _ in errors(error.value)] == ["INVALID_ARGUMENT"]  # allowed, but without data
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
    with pytest.raises(grpc.RpcError, match=message) as error:
        stream.receive()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    first.end()


def test_a_role_gets_the_packets_of_its_filter() -> None:
    packet = p4.PacketIn(metadata=[p4.PacketMetadata(metadata_id=1, value=b"\5")])
    assert not roles.RoleConfig().takes(packet)
    assert roles.RoleConfig(receives_packets=True).takes(packet)
    assert roles.RoleConfig(receives_packets=True, packet_filter=(1, b"\5")).takes(packet)
    assert not roles.RoleConfig(receives_packets=True, packet_filter=(1, b"\6")).takes(packet)
