"""Messages to a P4Runtime service: each gets a status that the service chose, and the next one is served.

A case is a service of its own with one of the programs, a primary controller and a hundred messages: entries
as they should be, with some fields changed; messages with any fields of their types; random bytes.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from benchmarks.p4.p4_fuzz.programs import REFUSED, SIZES, program_files
from p4src.messages import p4info_pb2
from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import CompileError, compile_source, p4info, preprocess_file
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import serve, translate

DEEPEST = 6
"""Levels of nested messages."""
KNOWN_PARTS = (
    *("tables", "actions", "action_profiles", "counters", "direct_counters", "meters", "direct_meters"),
    *("value_sets", "registers", "digests"),
)
EDGES = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
_LIMITS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_ENUM: (0, 9),
}


class Drawing:
    """Draws messages for one program."""

    def __init__(self, rng: random.Random, info: Any, source: str) -> None:
        self._rng = rng
        self._info = info
        self._source = source.encode()
        self._ids = [one.preamble.id for part in KNOWN_PARTS for one in getattr(info, part)]
        self._special: Mapping[str, Callable[[Any], None]] = {
            "p4.v1.TableEntry": self._table_entry,
            "p4.v1.ForwardingPipelineConfig": self._config,
        }

    def message(self, kind: Any) -> Any:
        """Return a message of this class, most often one that the primary controller may send."""
        message = kind()
        self._fill(message, 0)
        if self._rng.random() < 0.9:
            names = message.DESCRIPTOR.fields_by_name
            if "device_id" in names:
                message.device_id = 0
            if "election_id" in names:
                message.election_id.CopyFrom(p4.Uint128(low=1))
            for name in ("role", "role_id"):
                if name in names:
                    message.ClearField(name)
        return message

    def _fill(self, message: Any, depth: int) -> None:
        described: Descriptor = message.DESCRIPTOR
        special = self._special.get(described.full_name)
        if special is not None and self._rng.random() < 0.8:
            special(message)
            if self._rng.random() < 0.7:
                return
        chosen = {oneof.name: self._rng.choice(oneof.fields) for oneof in described.oneofs}
        for field in described.fields:
            wanted = self._rng.random() < (0.9 if depth < 2 else 0.4)
            if field.containing_oneof is not None:
                wanted = chosen[field.containing_oneof.name] is field
            if wanted and not _is_map(field):
                self._set(message, field, depth)

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        repeated = field.is_repeated
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            if repeated:
                getattr(message, field.name).append(self._scalar(field))
            else:
                setattr(message, field.name, self._scalar(field))
        elif depth < DEEPEST:
            many = self._rng.randint(0, 3) if repeated else 1
            for _ in range(many):
                inner = getattr(message, field.name).add() if repeated else getattr(message, field.name)
                inner.SetInParent()
                self._fill(inner, depth + 1)

    def _scalar(self, field: FieldDescriptor) -> Any:
        rng = self._rng
        match field.type:
            case FieldDescriptor.TYPE_BYTES:
                return rng.choice((b"", b"\0", b"\1", rng.randbytes(rng.randrange(1, 20))))
            case FieldDescriptor.TYPE_STRING:
                return rng.choice(("", "a role", "type.googleapis.com/p4.v1.Entity", "\0ü"))
            case FieldDescriptor.TYPE_BOOL:
                return rng.random() < 0.5
            case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
                return rng.choice((0.0, -1.0, float("nan"), float("inf")))
        low, high = _LIMITS[field.type]
        if field.name.endswith("_id") and self._ids and rng.random() < 0.7:
            return rng.choice(self._ids)
        return min(max(rng.choice((*range(8), *EDGES)), low), high)

    def _table_entry(self, entry: Any) -> None:
        """Fill in an entry as it should be."""
        if not self._info.tables:
            return
        table = self._rng.choice(self._info.tables)
        entry.table_id = table.preamble.id
        for field in table.match_fields:
            self._match(entry.match.add(field_id=field.id), field)
        entry.priority = self._rng.randint(0, 3)
        if table.implementation_id:
            entry.action.action_profile_member_id = self._rng.randrange(4)
        else:
            self._action(entry.action.action, self._rng.choice(table.action_refs).id)

    def _action(self, call: Any, number: int) -> None:
        call.action_id = number
        for action in self._info.actions:
            if action.preamble.id == number:
                for param in action.params:
                    call.params.add(param_id=param.id, value=self._value(param.bitwidth))

    def _match(self, match: Any, field: Any) -> None:
        value = self._value(field.bitwidth)
        match field.match_type:
            case p4info_pb2.MatchField.LPM:
                match.lpm.value, match.lpm.prefix_len = value, self._rng.randint(0, field.bitwidth)
            case p4info_pb2.MatchField.TERNARY:
                match.ternary.value, match.ternary.mask = value, self._value(field.bitwidth)
            case p4info_pb2.MatchField.RANGE:
                match.range.low, match.range.high = value, self._value(field.bitwidth)
            case p4info_pb2.MatchField.OPTIONAL:
                match.optional.value = value
            case _:
                match.exact.value = value

    def _value(self, width: int) -> bytes:
        """Return a number of at most this many bits, in as few bytes as it needs."""
        number = self._rng.getrandbits(max(1, min(width, self._rng.choice((1, 2, width)))))
        return translate.encode(number)

    def _config(self, config: Any) -> None:
        """Fill in the program itself, most often with some bytes changed."""
        config.p4info.CopyFrom(self._info)
        source = bytearray(self._source)
        for _ in range(self._rng.choice((0, 1, 3))):
            source[self._rng.randrange(len(source))] = self._rng.choice(b" ;{}()x0\xff")
        config.p4_device_config = bytes(source)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


MESSAGES = 100
TIMEOUT_S = 30.0
"""Longest wait for an answer, in seconds."""
SERVICE = "/p4.v1.P4Runtime/"
CALLS = {
    "Write": p4.WriteRequest,
    "Read": p4.ReadRequest,
    "SetForwardingPipelineConfig": p4.SetForwardingPipelineConfigRequest,
    "GetForwardingPipelineConfig": p4.GetForwardingPipelineConfigRequest,
    "Capabilities": p4.CapabilitiesRequest,
    "StreamChannel": p4.StreamMessageRequest,
}
OFTEN = ("Write", "Write", "Read", "StreamChannel")
"""Nineteen of twenty messages are one of these: loading a program takes as long as all of them."""
UNDECODED = "Exception deserializing message"
"""gRPC's message when it refuses bytes before the service gets them."""
NOT_OURS = (
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
)


class Misbehaved(Exception):
    """The service misbehaved; the text names the message that it received."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A program's preprocessed text and its P4Info."""

    source: str
    info: Any


def cases(seed: int, corpus: Path | None) -> Callable[[int], str]:
    """Return a function that tries one case by its number and returns its outcome. It raises defects."""
    paths = program_files(corpus)
    subject_of = cache(_subject)

    def case(number: int) -> str:
        subject = subject_of(paths[number % len(paths)])
        if subject is None:
            return REFUSED
        with _reported_exceptions() as reported:
            Session(subject, random.Random(f"{seed}/{number}"), reported).run()
        return "served"

    return case


def _subject(path: Path) -> Subject | None:
    try:
        text = preprocess_file(path, defines=SIZES)
        return Subject(text, p4info(compile_source(text, name=str(path), preprocessed=True)))
    except CompileError:
        return None


@contextmanager
def _reported_exceptions() -> Iterator[queue.SimpleQueue[str]]:
    """Collect the exceptions that gRPC and ending threads report."""
    reported: queue.SimpleQueue[str] = queue.SimpleQueue()
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: reported.put(logging.Formatter().format(record))  # type: ignore[method-assign]
    handler.addFilter(lambda record: not record.getMessage().startswith(UNDECODED))
    usual, log = threading.excepthook, logging.getLogger("grpc")
    threading.excepthook = lambda args: reported.put(repr(args.exc_value))
    log.addHandler(handler)
    try:
        yield reported
    finally:
        log.removeHandler(handler)
        threading.excepthook = usual


class Session:
    """One case."""

    def __init__(self, subject: Subject, rng: random.Random, reported: queue.SimpleQueue[str]) -> None:
        self._subject = subject
        self._rng = rng
        self._reported = reported
        self._drawing = Drawing(rng, subject.info, subject.source)

    def run(self) -> None:
        """Send all messages. Raises Misbehaved."""
        ports = {**{number: MemoryPort() for number in range(4)}, 510: MemoryPort(cpu=True)}
        with Switch(ports) as switch:
            service = serve(switch, source=self._subject.source)
            try:
                with grpc.insecure_channel(service.address) as channel, _primary(channel):
                    for _ in range(MESSAGES):
                        self._one(channel)
            finally:
                service.close()

    def _one(self, channel: grpc.Channel) -> None:
        name = self._rng.choice(OFTEN if self._rng.random() < 0.95 else (*CALLS,))
        data = self._bytes(name)
        error = _answer(channel, name, data)
        wrong = self._wrong(name, data, error)
        while not self._reported.empty():
            wrong = f"{wrong}\n{self._reported.get()}"
        if wrong:
            raise Misbehaved(f"{wrong}\nafter {name} of {data.hex()}:\n{_shown(name, data)}")

    def _bytes(self, name: str) -> bytes:
        data = bytearray(self._drawing.message(CALLS[name]).SerializeToString())
        if self._rng.random() < 0.1:
            for _ in range(self._rng.randint(1, 4)):
                data.insert(self._rng.randrange(len(data) + 1), self._rng.randrange(256))
        return bytes(data)

    def _wrong(self, name: str, data: bytes, error: grpc.RpcError | None) -> str:
        """Return the error in an answer, or ""."""
        if error is None:
            return ""
        text = f"{error.code().name}: {error.details()}"
        if error.code() is grpc.StatusCode.UNKNOWN:
            keys = [each.key for each in error.trailing_metadata() or ()]
            return "" if "grpc-status-details-bin" in keys else text
        if error.code() in NOT_OURS and _shown(name, data):
            return text  # what cannot be decoded, gRPC refuses itself
        return ""


def _answer(channel: grpc.Channel, name: str, data: bytes) -> grpc.RpcError | None:
    """Send bytes as a message, and return the error in the answer, if any."""
    path = SERVICE + name
    try:
        match name:
            case "StreamChannel":
                list(channel.stream_stream(path, bytes, bytes)(iter([data]), timeout=TIMEOUT_S))
            case "Read":
                list(channel.unary_stream(path, bytes, bytes)(data, timeout=TIMEOUT_S))
            case _:
                channel.unary_unary(path, bytes, bytes)(data, timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        return error
    return None


@contextmanager
def _primary(channel: grpc.Channel) -> Iterator[None]:
    """Become the primary controller, with election id 1."""
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    update = p4.MasterArbitrationUpdate(election_id=p4.Uint128(low=1))
    requests.put(p4.StreamMessageRequest(arbitration=update).SerializeToString())
    call = channel.stream_stream(SERVICE + "StreamChannel", bytes, bytes)(iter(requests.get, None))
    next(iter(call))
    try:
        yield
    finally:
        requests.put(None)
        call.cancel()  # type: ignore[no-untyped-call]  # the stubs say nothing of it


def _shown(name: str, data: bytes) -> str:
    """Return a message as text; nothing if it cannot be decoded."""
    try:
        return f"{CALLS[name].FromString(data)} "
    except DecodeError:
        return ""
