"""Clients that send what no controller would are told so, and the service goes on and can be ended."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from p4src.messages import p4runtime_pb2 as p4
from p4src.messages import p4runtime_pb2_grpc
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, serve
from softswitch.p4runtime.roles import MAX_STREAMS
from softswitch.p4runtime.server import MAX_MESSAGE, MAX_UNREAD, _Stream
from tests.softswitch.p4runtime.clients import PATIENCE_S, Client, Names, Source, primary, refused

NO_MESSAGE = b"\xff\xff\xff"


def arbitration(election_id: int) -> bytes:
    update = p4.MasterArbitrationUpdate(election_id=p4.Uint128(low=election_id))
    return bytes(p4.StreamMessageRequest(arbitration=update).SerializeToString())


def say(service: Service, *messages: bytes) -> grpc.RpcError:
    """Send bytes on a StreamChannel that stays open, and return how it ended."""
    said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    for message in messages:
        said.put(message)
    with grpc.insecure_channel(service.address) as channel:
        call = channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")(
            iter(said.get, None), timeout=PATIENCE_S
        )
        try:
            with pytest.raises(grpc.RpcError) as error:
                for _ in call:
                    pass
        finally:
            said.put(None)
    return error.value


@pytest.mark.parametrize("before", [(), (arbitration(7),)])
def test_bytes_that_are_no_message_end_the_stream_with_the_reason(
    service: Service, client: Client, before: tuple[bytes, ...]
) -> None:
    error = say(service, *before, NO_MESSAGE)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "3 bytes on the stream are no StreamMessageRequest; the stream ends here"
    with primary(client.stub, 8):  # others are served as before
        pass


def test_a_service_ends_after_bytes_that_are_no_messages(switch: Switch) -> None:
    service = serve(switch)
    for _ in range(20):
        say(service, NO_MESSAGE)
        with (
            grpc.insecure_channel(service.address) as channel,
            refused(grpc.StatusCode.INTERNAL),
        ):  # gRPC's own answer
            channel.unary_unary("/p4.v1.P4Runtime/Write")(NO_MESSAGE, timeout=PATIENCE_S)
    closing = threading.Thread(target=service.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        *(
            (
                p4.PacketOut(payload=bytes(length)),
                f"the frame has {length} bytes; this switch takes 1 to 9216",
            )
            for length in (0, 9217, 20_000)
        ),
        (
            p4.PacketOut(metadata=[p4.PacketMetadata(metadata_id=3, value=b"\1")]),
            "packet_out has no metadata field 3; there are no metadata fields",
        ),
    ],
)
def test_a_packet_out_that_no_port_could_take_is_an_error(client: Client, packet: Any, message: str) -> None:
    with primary(client.stub, 2) as stream:
        stream.send(packet=packet)
        error = stream.receive().error
        assert error.canonical_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert error.message == message
        assert error.packet_out.packet_out == packet


def test_a_message_larger_than_the_limit_is_refused_with_both_sizes(
    service: Service, client: Client, connect: Callable[[Service], Any], source: Source
) -> None:
    entry = p4.Entity(table_entry=p4.TableEntry(metadata=bytes(MAX_MESSAGE)))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED) as error:
        client.write("INSERT", entry)
    assert f"vs. {MAX_MESSAGE}" in error.value.details()
    over = say(service, arbitration(9), bytes(MAX_MESSAGE + 1))
    assert over.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.read(p4.Entity(table_entry=p4.TableEntry()))


def test_a_client_that_does_not_read_costs_a_bounded_amount() -> None:
    stream = _Stream()
    large = p4.StreamMessageResponse(packet=p4.PacketIn(payload=bytes(MAX_UNREAD // 4)))
    small = p4.StreamMessageResponse(packet=p4.PacketIn(payload=b"x"))
    for _ in range(10):
        stream.offer(large)
    stream.offer(small)
    assert [stream.take() == large for _ in range(3)] == [True] * 3
    assert stream.take() == small  # the fourth large one with its header was too much
    for _ in range(10):
        stream.offer(large)
    assert stream.responses.qsize() == 3


def test_answers_that_are_not_read_do_not_keep_others_from_being_served(
    service: Service, client: Client, names: Names
) -> None:
    client.write("INSERT", names.entry("lpm_table", action=names.action("mark", b"1"), metadata=bytes(1000)))
    request = p4.ReadRequest(entities=[names.entry("lpm_table")] * 1000)
    with grpc.insecure_channel(
        service.address, options=[("grpc.http2.bdp_probe", 0)]
    ) as channel:  # no buffer
        reader = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        calls = [reader.Read(request) for _ in range(MAX_STREAMS + 20)]
        reader.Capabilities(p4.CapabilitiesRequest(), timeout=PATIENCE_S)
        for call in calls:
            call.cancel()


def test_idle_streams_do_not_keep_others_from_being_served(service: Service, client: Client) -> None:
    """Streams that claim nothing are nobody's role, and each holds a thread."""
    said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with grpc.insecure_channel(service.address) as channel:
        open_stream = channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")
        calls = [open_stream(iter(said.get, None), timeout=PATIENCE_S) for _ in range(MAX_STREAMS + 40)]
        refused = 0
        while refused < 41:  # the client has one
            refused = sum(call.done() for call in calls)
            time.sleep(0.01)
        (reason,) = {call.details() for call in calls if call.done()}
        assert reason == f"{MAX_STREAMS} streams are open already"
        client.write("INSERT")
        for call in calls:
            call.cancel()
        for _ in calls:
            said.put(None)
