"""Messages to a P4Runtime service: each gets a status that the service chose, and the next one is served.

A case is a service of its own with one of the programs, a primary controller and a hundred messages: entries
as they should be, with some fields changed; messages with any fields of their types; bytes that are nothing.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from benchmarks.p4_fuzz.any_message import Drawing
from benchmarks.p4_fuzz.corpus import REFUSED, SIZES, program_files
from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import CompileError, compile_source, p4info, preprocess_file
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import serve

MESSAGES = 100
TIMEOUT_S = 30.0
"""Whoever gets no answer until then never gets one."""
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
"""Nineteen of twenty messages are one of these: a program that is loaded takes as long as all others."""
UNDECODED = "Exception deserializing message"
"""What gRPC says where it refuses bytes before the service sees them."""
NOT_OURS = (
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
)


class Misbehaved(Exception):
    """The service did what it should not; the message says to which message."""


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
        with _overheard() as heard:
            Session(subject, random.Random(f"{seed}/{number}"), heard).run()
        return "served"

    return case


def _subject(path: Path) -> Subject | None:
    try:
        text = preprocess_file(path, defines=SIZES)
        return Subject(text, p4info(compile_source(text, name=str(path), preprocessed=True)))
    except CompileError:
        return None


@contextmanager
def _overheard() -> Iterator[queue.SimpleQueue[str]]:
    """Hear what gRPC and dying threads say of exceptions."""
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: heard.put(logging.Formatter().format(record))  # type: ignore[method-assign]
    handler.addFilter(lambda record: not record.getMessage().startswith(UNDECODED))
    usual, log = threading.excepthook, logging.getLogger("grpc")
    threading.excepthook = lambda args: heard.put(repr(args.exc_value))
    log.addHandler(handler)
    try:
        yield heard
    finally:
        log.removeHandler(handler)
        threading.excepthook = usual


class Session:
    """One case."""

    def __init__(self, subject: Subject, rng: random.Random, heard: queue.SimpleQueue[str]) -> None:
        self._subject = subject
        self._rng = rng
        self._heard = heard
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
        while not self._heard.empty():
            wrong = f"{wrong}\n{self._heard.get()}"
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
        said = f"{error.code().name}: {error.details()}"
        if error.code() is grpc.StatusCode.UNKNOWN:
            keys = [each.key for each in error.trailing_metadata() or ()]
            return "" if "grpc-status-details-bin" in keys else said
        if error.code() in NOT_OURS and _shown(name, data):
            return said  # what cannot be decoded, gRPC refuses itself
        return ""


def _answer(channel: grpc.Channel, name: str, data: bytes) -> grpc.RpcError | None:
    """Send bytes as a message, and return the error that comes back, if any."""
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
    """Be the primary controller, with election id 1."""
    said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    update = p4.MasterArbitrationUpdate(election_id=p4.Uint128(low=1))
    said.put(p4.StreamMessageRequest(arbitration=update).SerializeToString())
    call = channel.stream_stream(SERVICE + "StreamChannel", bytes, bytes)(iter(said.get, None))
    next(iter(call))
    try:
        yield
    finally:
        said.put(None)
        call.cancel()  # type: ignore[no-untyped-call]  # the stubs say nothing of it


def _shown(name: str, data: bytes) -> str:
    """Return a message as text; nothing if it cannot be decoded."""
    try:
        return f"{CALLS[name].FromString(data)} "
    except DecodeError:
        return ""
