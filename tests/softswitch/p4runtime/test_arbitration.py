"""Mastership, rule by rule of the specification's section 5.3.

Who may do what at the service, and packets to and from its clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from p4src.messages import p4runtime_pb2 as p4
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, Serving, serve
from softswitch.p4runtime.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from softswitch.p4runtime.roles import FULL, MAX_STREAMS, Arbitration, Notification, StreamStanding
from tests.softswitch.p4runtime.clients import Client, Names, Source, Stream, config, primary, refused
from tests.softswitch.p4runtime.test_service import exact, probe

PRIMARY, BACKUP, NO_PRIMARY = StreamStanding.PRIMARY, StreamStanding.BACKUP, StreamStanding.NO_PRIMARY


def told(client: str, standing: StreamStanding, highest: int | None) -> Notification:
    return Notification(client, "", standing, highest)


def arbitrated(*updates: tuple[str, int]) -> Arbitration:
    """Return an arbitration of these updates, each of a client and its id, in the default role."""
    arbitration = Arbitration()
    for client, id_ in updates:
        arbitration.update(client, "", id_)
    return arbitration


def test_a_higher_id_takes_over_and_the_old_primary_hears_first() -> None:
    arbitration = arbitrated(("a", 1))
    assert arbitration.update("b", "", 2) == [told("a", BACKUP, 2), told("b", PRIMARY, 2)]
    with pytest.raises(PermissionDenied, match=r"election id 1 is not the primary's, which is 2"):
        arbitration.check_primary("", 1)
    arbitration.check_primary("", 2)


@pytest.mark.parametrize(
    ("earlier", "last", "heard"),
    [
        ([], ("a", 1), [told("a", PRIMARY, 1)]),  # the first with an id
        ([], ("a", None), [told("a", NO_PRIMARY, None)]),  # without an id nobody becomes primary
        ([], ("a", 0), [told("a", PRIMARY, 0)]),  # 0 is an id like others
        ([("a", 5)], ("b", 2), [told("b", BACKUP, 5)]),  # a lower id is a backup, and only it is told
        ([("a", 5), ("b", 2)], ("a", 1), [told("a", NO_PRIMARY, 5), told("b", NO_PRIMARY, 5)]),  # steps down
        ([("a", 5)], ("a", 5), [told("a", PRIMARY, 5)]),  # the same id again changes nothing
        # the highest id, which its first user has given up
        ([("a", 5), ("b", 2), ("a", 1)], ("b", 5), [told("a", BACKUP, 5), told("b", PRIMARY, 5)]),
    ],
)
def test_those_are_told_whom_an_update_concerns(
    earlier: list[tuple[str, int]], last: tuple[str, int | None], heard: list[object]
) -> None:
    assert arbitrated(*earlier).update(last[0], "", last[1]) == heard


def test_an_id_in_use_ends_the_stream() -> None:
    arbitration = arbitrated(("a", 5))
    with pytest.raises(InvalidArgument, match="election id 5 is used"):
        arbitration.update("b", "", 5)
    assert arbitration.leave("b") == []
    arbitration.check_primary("", 5)


def test_when_the_primary_leaves_nobody_is_promoted() -> None:
    arbitration = arbitrated(("a", 5), ("b", 2))
    assert arbitration.leave("a") == [told("b", NO_PRIMARY, 5)]
    with pytest.raises(PermissionDenied, match="no primary"):
        arbitration.check_primary("", 5)
    assert arbitration.update("b", "", 4) == [told("b", NO_PRIMARY, 5)]
    assert arbitration.update("b", "", 5) == [told("b", PRIMARY, 5)]


def test_roles_have_their_own_primaries() -> None:
    arbitration = arbitrated(("a", 5))
    arbitration.update("b", "routing", 1)
    arbitration.check_primary("routing", 1)
    arbitration.check_primary("", 5)
    assert arbitration.primaries() == [("a", FULL), ("b", FULL)]
    with pytest.raises(NotFound, match="no controller has role 'other'"):
        arbitration.check_primary("other", 1)


def test_streams_are_limited() -> None:
    arbitration = arbitrated(*((str(i), i) for i in range(MAX_STREAMS)))
    with pytest.raises(ResourceExhausted, match=f"{MAX_STREAMS} controllers"):
        arbitration.update("one more", "", None)


def test_before_any_program_requests_are_refused(
    empty_service: Service, connect: Callable[[Service], Any], names: Names
) -> None:
    stub = connect(empty_service)
    with primary(stub, 1):
        client = Client(stub, 1)
        for request in (lambda: client.write("INSERT"), lambda: client.read(names.entry("exact_table"))):
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "no program is loaded"):
                request()
        response = stub.GetForwardingPipelineConfig(p4.GetForwardingPipelineConfigRequest())
        assert not response.HasField("config")


def test_only_the_primary_writes(service: Service, connect: Callable[[Service], Any], source: Source) -> None:
    stub = connect(service)
    with refused(grpc.StatusCode.PERMISSION_DENIED, "no primary controller"):
        Client(stub, 1).write("INSERT")
    first, second = Stream(stub), Stream(stub)
    assert first.arbitrate(1).status.code == grpc.StatusCode.OK.value[0]
    assert second.arbitrate(2).status.code == grpc.StatusCode.OK.value[0]
    demoted = first.receive().arbitration
    assert demoted.status.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
    assert demoted.election_id.low == 2
    with pytest.raises(grpc.RpcError, match="election id 1 is not the primary's"):
        Client(stub, 1).configure("VERIFY", config(source))
    Client(stub, 2).write("INSERT")
    second.end()
    orphaned = first.receive().arbitration
    assert orphaned.status.code == grpc.StatusCode.NOT_FOUND.value[0]
    with pytest.raises(grpc.RpcError, match="no primary controller"):
        Client(stub, 2).write("INSERT")
    first.end()


@pytest.mark.parametrize(
    ("election_id", "fields", "code"),
    [
        (1, {"device_id": 5}, grpc.StatusCode.NOT_FOUND),
        (7, {}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_a_bad_arbitration_ends_the_stream(
    service: Service,
    connect: Callable[[Service], Any],
    election_id: int,
    fields: dict[str, Any],
    code: grpc.StatusCode,
) -> None:
    stub = connect(service)
    with primary(stub, 7), refused(code):
        Stream(stub).arbitrate(election_id, **fields)


def test_another_device_is_not_here_and_a_stream_keeps_device_and_role(
    client: Client, service: Service, connect: Callable[[Service], Any]
) -> None:
    with refused(grpc.StatusCode.NOT_FOUND, "no device 3 here; this switch is device 0"):
        client.write("INSERT", device_id=3)
    for changed, what in (({"device_id": 3}, "for 3"), ({"role": "x"}, "for role 'x'")):
        stream = Stream(connect(service))
        stream.arbitrate(7)
        with refused(grpc.StatusCode.FAILED_PRECONDITION, f"open another one {what}"):
            stream.arbitrate(7, **changed)


def test_a_service_closes_while_streams_are_open(
    switch: Switch, connect: Callable[[Service], Any], source: Source
) -> None:
    service = serve(switch, source=source.text)
    stream = Stream(connect(service))
    stream.arbitrate(1)
    service.close()
    with pytest.raises((StopIteration, grpc.RpcError)):
        stream.receive()


def test_a_port_in_use_is_refused(service: Service, switch: Switch) -> None:
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{service.port}"):
        serve(switch, serving=Serving(address=f"127.0.0.1:{service.port}"))


# ---------------------------------------------------------------------- packets


def test_packets_go_in_at_the_cpu_port(
    client: Client, names: Names, service: Service, switch: Switch
) -> None:
    client.write("INSERT", names.entry("exact_table", exact(7), action=names.action("send", b"\2")))
    with primary(client.stub, 2) as stream:
        stream.send(packet=p4.PacketOut(payload=probe(7)))
        stream.send(digest_ack=p4.DigestListAck())
        assert "no digest has id" in stream.receive().error.message  # so the packet before it has been taken
        assert switch.drain(2) == [probe(7)]


def test_packets_come_out_of_the_cpu_port(client: Client, names: Names, switch: Switch) -> None:
    with primary(client.stub, 2) as stream:
        Client(client.stub, 2).write(
            "INSERT", names.entry("exact_table", exact(7), action=names.action("send", b"\1\xfe"))
        )
        switch.inject(0, [probe(7)])
        assert stream.receive().packet.payload == probe(7)


def test_a_backup_may_not_send_packets(client: Client) -> None:
    stream = Stream(client.stub)
    assert stream.arbitrate(None).status.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
    stream.send(packet=p4.PacketOut(payload=b"x"))
    error = stream.receive().error
    assert error.canonical_code == grpc.StatusCode.PERMISSION_DENIED.value[0]
    assert error.packet_out.packet_out.payload == b"x"
    stream.end()
