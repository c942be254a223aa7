"""A switch with a P4Runtime service on loopback."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from p4src.messages import p4runtime_pb2_grpc
from softswitch.compiler import p4info, preprocess_file
from softswitch.engine.cache import compile_once
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, serve
from tests.softswitch.p4runtime.clients import Client, Names, Source, Stream


@pytest.fixture(scope="session")
def source() -> Source:
    text = preprocess_file(Path(__file__).with_name("entries.p4"))
    return Source(text, p4info(compile_once(text)))


@pytest.fixture
def switch() -> Iterator[Switch]:
    ports = {n: MemoryPort() for n in range(4)}
    with Switch({**ports, 510: MemoryPort(cpu=True)}) as switch:
        yield switch


@pytest.fixture
def empty_service(switch: Switch) -> Iterator[Service]:
    service = serve(switch)
    yield service
    service.close()


@pytest.fixture
def service(switch: Switch, source: Source) -> Iterator[Service]:
    service = serve(switch, source=source.text)
    yield service
    service.close()


@pytest.fixture
def connect() -> Iterator[Callable[[Service], Any]]:
    channels = []

    def open_stub(service: Service) -> Any:
        channels.append(grpc.insecure_channel(f"127.0.0.1:{service.port}"))
        return p4runtime_pb2_grpc.P4RuntimeStub(channels[-1])

    yield open_stub
    for channel in channels:
        channel.close()


@pytest.fixture
def client(service: Service, connect: Callable[[Service], Any]) -> Iterator[Client]:
    stub = connect(service)
    stream = Stream(stub)
    assert stream.arbitrate(1).status.code == 0
    yield Client(stub, 1)
    stream.end()


@pytest.fixture(scope="session")
def names(source: Source) -> Names:
    return Names(source.info)
