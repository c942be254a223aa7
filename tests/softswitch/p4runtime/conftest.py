"""A switch with a P4Runtime service on loopback."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from p4src.messages import p4runtime_pb2_grpc
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, serve
from tests.softswitch.p4runtime.clients import Client, Names, Source, compiled, primary


@pytest.fixture(scope="session")
def source() -> Source:
    return compiled(Path(__file__).with_name("entries.p4").read_text())


@pytest.fixture
def switch() -> Iterator[Switch]:
    ports = {n: MemoryPort() for n in range(4)}
    with Switch({**ports, 510: MemoryPort(cpu=True)}) as switch:
        yield switch


@pytest.fixture
def empty_service(switch: Switch) -> Iterator[Service]:
    with closing(serve(switch)) as service:
        yield service


@pytest.fixture
def service(switch: Switch, source: Source) -> Iterator[Service]:
    with closing(serve(switch, source=source.text)) as service:
        yield service


@pytest.fixture
def connect() -> Iterator[Callable[[Service], Any]]:
    with ExitStack() as channels:
        yield lambda service: p4runtime_pb2_grpc.P4RuntimeStub(
            channels.enter_context(grpc.insecure_channel(service.address))
        )


@pytest.fixture
def client(service: Service, connect: Callable[[Service], Any]) -> Iterator[Client]:
    stub = connect(service)
    with primary(stub, 1):
        yield Client(stub, 1)


@pytest.fixture(scope="session")
def names(source: Source) -> Names:
    return Names(source.info)
