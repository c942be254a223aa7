"""Sessions of other people's controllers, recorded against this switch, and replayed message by message.

finsy 0.30.0 and p4runtime-shell 0.0.6 need versions of protobuf that this project cannot have. Each did
the same with ``sessions/learning.p4``: became primary, loaded the program, wrote and read table entries,
counters, a multicast group and a clone session, sent a packet out and took one in. A line of a recording is
a request with its answer, a message on the stream, or a frame that arrives or leaves; the device config is
left out of it, and compiled here.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import preprocess_file
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service
from tests.softswitch.p4runtime.clients import Stream, errors

FOLDER = Path(__file__).with_name("sessions")
NO_DIGEST = p4.DigestListAck(digest_id=1)


def parsed(type_: Any, fields: dict[str, Any]) -> Any:
    return json_format.ParseDict(fields, type_())


class Replay:
    """A recording on its way through the service."""

    def __init__(self, stub: Any, switch: Switch, source: bytes) -> None:
        self.stub, self.switch, self.source = stub, switch, source
        self.stream = Stream(stub)

    def step(self, line: dict[str, Any]) -> None:
        match line:
            case {"send": message}:
                self.send(parsed(p4.StreamMessageRequest, message))
            case {"receive": message}:
                assert self.stream.receive() == parsed(p4.StreamMessageResponse, message)
            case {"inject": port, "frame": frame}:
                self.switch.inject(port, [bytes.fromhex(frame)])
            case {"leaves": port, "frames": frames}:
                assert [frame.hex() for frame in self.switch.drain(port)] == frames
            case {"call": "Read", "request": request, "responses": responses}:
                found = list(self.stub.Read(parsed(p4.ReadRequest, request)))
                assert found == [parsed(p4.ReadResponse, response) for response in responses]
            case {"call": call, "request": request}:
                self.call(call, request, line)

    def send(self, message: Any) -> None:
        self.stream.send(**{message.WhichOneof("update"): getattr(message, message.WhichOneof("update"))})
        if message.HasField("packet"):  # the answer to what follows says that it has been taken
            self.stream.send(digest_ack=NO_DIGEST)
            assert self.stream.receive().error.digest_list_ack.digest_list_ack == NO_DIGEST

    def call(self, name: str, fields: dict[str, Any], line: dict[str, Any]) -> None:
        request = parsed(getattr(p4, f"{name}Request"), fields)
        if name == "SetForwardingPipelineConfig":
            request.config.p4_device_config = self.source
        if "response" not in line:
            with pytest.raises(grpc.RpcError) as error:
                getattr(self.stub, name)(request)
            assert [code for code, _ in errors(error.value)] == ["NOT_FOUND"]
            return
        response = getattr(self.stub, name)(request)
        if name == "GetForwardingPipelineConfig":
            response.config.ClearField("p4_device_config")
            wanted = parsed(type(response), line["response"])
            assert response.config.p4info == wanted.config.p4info
        else:
            assert response == parsed(type(response), line["response"])


@pytest.mark.parametrize("session", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_recorded_session(
    session: Path, empty_service: Service, switch: Switch, connect: Callable[[Service], Any]
) -> None:
    source = preprocess_file(FOLDER / "learning.p4").encode()
    replay = Replay(connect(empty_service), switch, source)
    lines = [json.loads(line) for line in session.read_text().splitlines()]
    assert {"Write", "Read", "SetForwardingPipelineConfig"} <= {line.get("call") for line in lines}
    for line in lines:
        replay.step(line)
