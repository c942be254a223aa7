"""A real switch with ``p4src/exclusive.p4`` for 32 lanes, reached over gRPC on loopback."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from controller import Controller, ProgramBundle
from controller.p4runtime_shim import P4RuntimeClient
from controller.p4runtime_shim.messages import p4runtime_pb2 as p4
from controller.programs import locate
from softswitch.compiler import compile_source, p4info, preprocess_file
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, serve

LANES = 32


@dataclass(frozen=True)
class Running:
    switch: Switch
    service: Service

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.service.port}"


@pytest.fixture(scope="session")
def bundle() -> ProgramBundle:
    path, defines = locate("exclusive", lanes=LANES)
    text = preprocess_file(path, defines=defines)
    return ProgramBundle("exclusive", p4info(compile_source(text)), text.encode())


@pytest.fixture(scope="session")
def shared_switch(bundle: ProgramBundle) -> Iterator[Running]:
    with Switch({n: MemoryPort() for n in range(40)}) as switch:
        service = serve(switch, source=bundle.device_config.decode())
        yield Running(switch, service)
        service.close()


@pytest.fixture
def running(shared_switch: Running) -> Iterator[Running]:
    """The switch, empty before and after; what is left over fails the test."""
    yield shared_switch
    client = P4RuntimeClient(shared_switch.address)
    everything = p4.PacketReplicationEngineEntry(multicast_group_entry=p4.MulticastGroupEntry())
    found = client.read(
        [p4.Entity(table_entry=p4.TableEntry()), p4.Entity(packet_replication_engine_entry=everything)]
    )
    client.close()
    assert [entity for entity in found if not entity.table_entry.is_const] == []


@pytest.fixture
def connect(running: Running) -> Iterator[Callable[[], Controller]]:
    controllers = []

    def open_controller() -> Controller:
        controllers.append(Controller.connect(running.address))
        return controllers[-1]

    yield open_controller
    for controller in controllers:
        controller.close()


@pytest.fixture
def controller(connect: Callable[[], Controller]) -> Controller:
    return connect()
