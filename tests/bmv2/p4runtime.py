"""The reference with P4Runtime instead of Thrift: ``simple_switch_grpc``.

It cannot be asked for registers, which P4Runtime has no way to read on BMv2, nor for longer queues: so what
it is given goes in by small parts. Everything else is compared as with ``simple_switch``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bmv2_topos.testbeds.bmv2.plane import P4RuntimePlane
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.switches.programs import ProgramBundle, p4c_command, p4c_output
from softswitch.compiler import ir
from tests.bmv2.reference import Arrival, Reference
from tests.bmv2.targets import Delete, Insert, Members, Modify, State, Write

PART = 48
"""Packets that go in at once: what comes of them fits into any queue of 64."""


def grpc_bundle(source: Path, directory: Path, defines: Mapping[str, str]) -> ProgramBundle:
    """Compile a program for it."""
    subprocess.run(p4c_command(source, defines, directory), check=True)
    return p4c_output(source, directory)


class GrpcReference(Reference):
    """A running simple_switch_grpc, as `Reference`."""

    def _command(self, program: Path) -> list[str]:
        self._socket = self._directory / "p4runtime"
        return ["simple_switch_grpc", "--no-p4", "--use-files", "0", "-L", "off"]

    def _more(self, program: Path) -> list[str]:
        return ["--", "--grpc-server-addr", f"unix:{self._socket}"]

    def _answers(self) -> bool:
        return self._socket.exists()

    def _connect(self) -> None:
        self.client = P4RuntimeClient(f"unix:{self._socket}", timeout_s=60)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self._switch.stop()

    def send(self, packets: Iterable[Arrival]) -> list[Arrival]:
        """Feed packets, part by part; as `Reference.send`."""
        left = list(packets)
        parts = [left[first : first + PART] for first in range(0, len(left), PART)]
        return [arrival for part in parts for arrival in super(GrpcReference, self).send(part)]


class OverP4Runtime:
    """`tests.bmv2.targets.Target`, but for registers, over P4Runtime. `program` tells the types of keys."""

    def __init__(self, reference: GrpcReference, program: ir.Program, bundle: ProgramBundle) -> None:
        self._client = reference.client
        self._program = program
        self._plane = P4RuntimePlane(self._client, program, bundle)
        with self._client.mastership():
            self._client.load(bundle.p4info, bundle.device_config)

    def __enter__(self) -> Self:
        """Be the primary until the end of the block."""
        self._turn = self._client.mastership()
        self._turn.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turn.__exit__(kind, value, trace)

    def write(self, write: Write) -> None:
        """Change a table."""
        match write:
            case Insert():
                self._plane.insert(write.table, write.entry)
            case Modify():
                self._plane.modify(write.table, write.entry)
            case Delete():
                self._plane.delete(write.table, write.entry)

    def set_default(self, table: str, invocation: ir.Invocation) -> None:
        """Set what a miss runs."""
        self._plane.set_default(table, invocation)

    def add_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""
        self._plane.set_multicast_group(group, members)

    def registers(self) -> dict[str, list[int]]:
        """Return nothing: they cannot be read."""
        return {}

    def state(self, entries: Mapping[str, Sequence[ir.ConstEntry]]) -> State:
        """Read all counters; `entries` are those with direct counters, by table."""
        plane = self._plane
        indirect = [counter for counter in self._program.counters.values() if counter.table is None]
        return State(
            {},
            {each.name: [plane.read_counter(each.name, i) for i in range(each.size)] for each in indirect},
            {
                table: [plane.read_direct_counter(table, entry) for entry in of]
                for table, of in entries.items()
            },
        )
