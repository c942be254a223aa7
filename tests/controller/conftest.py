"""Real switches with the programs of ``p4src`` for 32 lanes, reached over gRPC on loopback."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from controller import Controller, ProgramBundle
from controller.p4runtime_shim import P4RuntimeClient
from controller.programs import locate
from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import compile_source, p4info, preprocess_file
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, serve
from tests.controller.fabric import Fabric

LANES = 32


@dataclass(frozen=True)
class Running:
    switch: Switch
    service: Service

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.service.port}"

    def close(self) -> None:
        self.service.close()
        self.switch.close()

    def wipe(self) -> list[object]:
        """Delete, and return, what was left in the switch."""
        client = P4RuntimeClient(self.address)
        everything = p4.PacketReplicationEngineEntry(multicast_group_entry=p4.MulticastGroupEntry())
        found = client.read(
            [p4.Entity(table_entry=p4.TableEntry()), p4.Entity(packet_replication_engine_entry=everything)]
        )
        left = [entity for entity in found if not entity.table_entry.is_const]
        if left:
            with client.mastership():
                client.write("DELETE", left)
        client.close()
        return left


def start(bundle: ProgramBundle) -> Running:
    switch = Switch({n: MemoryPort() for n in range(40)})
    return Running(switch, serve(switch, source=bundle.device_config.decode()))


def compile_bundle(program: str) -> ProgramBundle:
    path, defines = locate(program, lanes=LANES)
    text = preprocess_file(path, defines=defines)
    return ProgramBundle(program, p4info(compile_source(text)), text.encode())


@pytest.fixture(scope="session")
def bundle() -> ProgramBundle:
    return compile_bundle("exclusive")


@pytest.fixture(scope="session")
def shared_bundle() -> ProgramBundle:
    return compile_bundle("shared")


@pytest.fixture(scope="session")
def exclusive_switch(bundle: ProgramBundle) -> Iterator[Running]:
    running = start(bundle)
    yield running
    running.close()


@pytest.fixture
def running(exclusive_switch: Running) -> Iterator[Running]:
    """A switch with the exclusive program, empty before and after."""
    yield exclusive_switch
    assert exclusive_switch.wipe() == []


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


@pytest.fixture(scope="session")
def switches(bundle: ProgramBundle, shared_bundle: ProgramBundle) -> Iterator[dict[str, dict[str, Running]]]:
    """By program, some switches to make trees of."""
    running = {b.name: {name: start(b) for name in ("root", "a", "b", "c")} for b in (bundle, shared_bundle)}
    yield running
    for of_program in running.values():
        for switch in of_program.values():
            switch.close()


def fabric_of(running: dict[str, Running]) -> Iterator[Fabric]:
    controllers = {name: Controller.connect(switch.address) for name, switch in running.items()}
    yield Fabric({name: switch.switch for name, switch in running.items()}, controllers)
    for controller in controllers.values():
        controller.close()
    assert [switch.wipe() for switch in running.values()] == [[]] * len(running)


@pytest.fixture
def exclusive_fabric(switches: dict[str, dict[str, Running]]) -> Iterator[Fabric]:
    yield from fabric_of(switches["exclusive"])


@pytest.fixture
def shared_fabric(switches: dict[str, dict[str, Running]]) -> Iterator[Fabric]:
    """Switches with the shared program, empty before and after."""
    yield from fabric_of(switches["shared"])


@pytest.fixture
def shared(shared_fabric: Fabric) -> Controller:
    """The controller of one switch with the shared program."""
    return shared_fabric.controllers["root"]
