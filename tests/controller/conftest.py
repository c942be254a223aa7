"""Real switches with the programs of ``p4src`` for 32 lanes, reached over gRPC on loopback or directly."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import pytest

from bmv2_topos.testbeds.virtual.target import PipelineTarget
from controller import ProgramBundle, SwitchSession
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.p4runtime_shim.codec import Codec
from controller.p4runtime_shim.target import P4RuntimeTarget
from controller.switches.programs import objects, source_of
from controller.switches.target import TableEntry, Target
from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import p4info
from softswitch.engine.build import load
from softswitch.engine.cache import compile_once, preprocess_once
from softswitch.engine.pipeline import Pipeline
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, serve
from tests.controller.fabric import Fabric

LANES = 32
TARGETS = ("p4runtime", "memory")
"""The ways to reach a switch."""
SHORT_TURN_S = 2.0
"""For those that are to wait in vain, but not so short that a busy switch seems to be out of reach."""
over_p4runtime = pytest.mark.parametrize("target", ["p4runtime"])
"""Of tests about what only P4Runtime has."""


class Running(Protocol):
    """A switch, and how controllers reach it."""

    @property
    def switch(self) -> Switch: ...

    def target(self) -> Target:
        """Reach the switch once more."""

    def wipe(self) -> list[object]:
        """Delete, and return, what was left in the switch."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Served:
    switch: Switch
    service: Service

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.service.port}"

    def target(self) -> P4RuntimeTarget:
        return P4RuntimeTarget(self.address)

    def close(self) -> None:
        self.service.close()
        self.switch.close()

    def wipe(self) -> list[object]:
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


@dataclass(frozen=True)
class InMemory:
    switch: Switch
    pipeline: Pipeline
    reached: PipelineTarget

    def target(self) -> PipelineTarget:
        return self.reached

    def close(self) -> None:
        self.switch.close()

    def wipe(self) -> list[object]:
        left = self.reached.read(t.name for t in self.pipeline.program.tables.values() if not t.const_entries)
        self.reached.write("DELETE", left)
        return list(left)


def start(bundle: ProgramBundle, target: str = "p4runtime") -> Running:
    switch = Switch({n: MemoryPort() for n in range(40)})
    if target == "p4runtime":
        return Served(switch, serve(switch, source=bundle.device_config.decode()))
    pipeline = load(compile_once(bundle.device_config.decode(), name=bundle.name))
    switch.load(pipeline)
    return InMemory(
        switch, pipeline, PipelineTarget("memory", switch, pipeline, objects(p4info(pipeline.program)))
    )


def default_row(address: str, bundle: ProgramBundle, table: str) -> TableEntry:
    """Read the default entry of a table."""
    codec = Codec(bundle.p4info)
    asked = codec.all_rows(table)
    asked.table_entry.is_default_action = True
    with closing(P4RuntimeClient(address)) as client:
        (found,) = client.read([asked])
    row = codec.decode(found)
    assert isinstance(row, TableEntry)
    return row


def compile_bundle(program: str) -> ProgramBundle:
    path, defines = source_of(program, LANES)
    text = preprocess_once(path, defines=defines)
    return ProgramBundle(program, p4info(compile_once(text, name=program)), text.encode())


@pytest.fixture(scope="session")
def bundle() -> ProgramBundle:
    return compile_bundle("exclusive")


@pytest.fixture(scope="session")
def shared_bundle() -> ProgramBundle:
    return compile_bundle("shared")


Switches = dict[tuple[str, str], dict[str, Running]]
"""By target and program, some switches to make trees of."""


@pytest.fixture(scope="session")
def switches(bundle: ProgramBundle, shared_bundle: ProgramBundle) -> Iterator[Switches]:
    running = {
        (target, b.name): {name: start(b, target) for name in ("root", "a", "b", "c")}
        for target in TARGETS
        for b in (bundle, shared_bundle)
    }
    yield running
    for of_program in running.values():
        for switch in of_program.values():
            switch.close()


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """How the controllers of a test reach their switches."""
    return str(request.param)


@pytest.fixture
def running(switches: Switches, target: str) -> Iterator[Running]:
    """A switch with the exclusive program, empty before and after."""
    running = switches[target, "exclusive"]["root"]
    yield running
    assert running.wipe() == []


@pytest.fixture
def connect(running: Running) -> Iterator[Callable[[], SwitchSession]]:
    controllers = []

    def open_controller() -> SwitchSession:
        controllers.append(SwitchSession(running.target()))
        return controllers[-1]

    yield open_controller
    for controller in controllers:
        controller.close()


@pytest.fixture
def controller(connect: Callable[[], SwitchSession]) -> SwitchSession:
    return connect()


def fabric_of(running: dict[str, Running]) -> Iterator[Fabric]:
    fabric = Fabric(running)
    yield fabric
    for controller in fabric.controllers.values():
        controller.close()
    assert [switch.wipe() for switch in running.values()] == [[]] * len(running)


@pytest.fixture
def exclusive_fabric(switches: Switches, target: str) -> Iterator[Fabric]:
    yield from fabric_of(switches[target, "exclusive"])


@pytest.fixture
def shared_fabric(switches: Switches, target: str) -> Iterator[Fabric]:
    """Switches with the shared program, empty before and after."""
    yield from fabric_of(switches[target, "shared"])


@pytest.fixture
def shared(shared_fabric: Fabric) -> SwitchSession:
    """The controller of one switch with the shared program."""
    return shared_fabric.controllers["root"]
