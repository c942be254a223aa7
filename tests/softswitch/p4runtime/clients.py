"""What tests of the service use: plain gRPC requests, as any client would send them."""

import contextlib
import queue
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from p4src.messages import p4runtime_pb2 as p4
from p4src.messages import status_pb2
from softswitch.compiler import p4info
from softswitch.compiler.frontend.preprocess import preprocess
from softswitch.engine.cache import compile_once

PATIENCE_S = 600.0


@dataclass(frozen=True)
class Source:
    """A program, preprocessed."""

    text: str
    info: Any


def compiled(text: str, name: str = "t.p4") -> Source:
    """Preprocess and compile a program."""
    plain = preprocess(text, name)
    return Source(plain, p4info(compile_once(plain)))


class Stream:
    """A StreamChannel of which the test holds both ends."""

    def __init__(self, stub: Any) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = stub.StreamChannel(iter(self._requests.get, None), timeout=PATIENCE_S)

    def send(self, **update: Any) -> None:
        self._requests.put(p4.StreamMessageRequest(**update))

    def arbitrate(self, election_id: int | None, *, device_id: int = 0, role: str = "") -> Any:
        message = p4.MasterArbitrationUpdate(device_id=device_id)
        if election_id is not None:
            message.election_id.low = election_id
        if role:
            message.role.name = role
        self.send(arbitration=message)
        return self.receive().arbitration

    def receive(self) -> Any:
        return next(self._call)

    def end(self) -> None:
        self._requests.put(None)
        for _ in self._call:
            pass


@contextlib.contextmanager
def primary(stub: Any, election_id: int) -> Iterator[Stream]:
    """Give a stream that has become the primary, and that ends with the block."""
    stream = Stream(stub)
    assert stream.arbitrate(election_id).status.code == grpc.StatusCode.OK.value[0]
    yield stream
    stream.end()


@contextlib.contextmanager
def refused(code: grpc.StatusCode, match: str | None = None) -> Iterator[pytest.ExceptionInfo[grpc.RpcError]]:
    """Check that the block ends with this status, and with such a message."""
    with pytest.raises(grpc.RpcError, match=match) as error:
        yield error
    assert error.value.code() is code


class Client:
    """Requests with the election id of a primary."""

    def __init__(self, stub: Any, election_id: int) -> None:
        self.stub = stub
        self._id = p4.Uint128(low=election_id)

    def write(self, kind: str, *entities: Any, **fields: Any) -> None:
        updates = [p4.Update(type=p4.Update.Type.Value(kind), entity=e) for e in entities]
        self.stub.Write(p4.WriteRequest(election_id=self._id, updates=updates, **fields), timeout=PATIENCE_S)

    def write_updates(self, updates: list[tuple[str, Any]], **fields: Any) -> None:
        messages = [p4.Update(type=p4.Update.Type.Value(kind), entity=entity) for kind, entity in updates]
        request = p4.WriteRequest(election_id=self._id, updates=messages, **fields)
        self.stub.Write(request, timeout=PATIENCE_S)

    def read(self, *entities: Any) -> list[Any]:
        responses = self.stub.Read(p4.ReadRequest(entities=entities), timeout=PATIENCE_S)
        return [entity for response in responses for entity in response.entities]

    def configure(self, action: str, config: Any = None) -> None:
        request = p4.SetForwardingPipelineConfigRequest(
            election_id=self._id,
            action=p4.SetForwardingPipelineConfigRequest.Action.Value(action),
            config=config,
        )
        self.stub.SetForwardingPipelineConfig(request, timeout=PATIENCE_S)


def config(source: Source, **fields: Any) -> Any:
    return p4.ForwardingPipelineConfig(
        **{"p4info": source.info, "p4_device_config": source.text.encode(), **fields}
    )


def errors(error: grpc.RpcError) -> list[tuple[str, str]]:
    """Code and message of every update of a failed batch."""
    names = {code.value[0]: code.name for code in grpc.StatusCode}
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            found = []
            for detail in status_pb2.Status.FromString(value).details:
                update = p4.Error()
                assert detail.Unpack(update)
                found.append((names[update.canonical_code], update.message))
            return found
    return []


def exact(value: int, field: int = 1) -> Any:
    match = p4.FieldMatch.Exact(value=value.to_bytes(2, "big").lstrip(b"\0"))
    return p4.FieldMatch(field_id=field, exact=match)


def lpm(value: bytes, length: int) -> Any:
    return p4.FieldMatch(field_id=1, lpm=p4.FieldMatch.LPM(value=value, prefix_len=length))


def ternary(value: bytes, mask: bytes) -> Any:
    return p4.FieldMatch(field_id=1, ternary=p4.FieldMatch.Ternary(value=value, mask=mask))


class Names:
    """Entities by the names of a P4Info."""

    def __init__(self, info: Any) -> None:
        self.tables = {t.preamble.alias: t for t in info.tables}
        self.actions = {a.preamble.alias: a for a in info.actions}
        self.counters = {c.preamble.alias: c for c in info.counters}

    def action(self, name: str, *params: bytes) -> Any:
        message = p4.TableAction()
        message.action.action_id = self.actions[name].preamble.id
        for i, value in enumerate(params, 1):
            message.action.params.add(param_id=i, value=value)
        return message

    def entry(self, table: str, *match: Any, action: Any = None, **fields: Any) -> Any:
        return p4.Entity(
            table_entry=p4.TableEntry(
                table_id=self.tables[table].preamble.id, match=match, action=action, **fields
            )
        )

    def cell(self, counter: str, index: int | None, **data: int) -> Any:
        message = p4.CounterEntry(counter_id=self.counters[counter].preamble.id)
        if index is not None:
            message.index.index = index
        if data:
            message.data.CopyFrom(p4.CounterData(**data))
        return p4.Entity(counter_entry=message)
