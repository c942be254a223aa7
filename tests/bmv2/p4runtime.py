"""The reference with P4Runtime instead of Thrift: ``simple_switch_grpc``.

It cannot be asked for registers, which P4Runtime has no way to read on BMv2, nor for longer queues: so what
it is given goes in by small parts. Everything else is compared as with ``simple_switch``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controller.entries import Lpm, Match, MulticastGroup, TableEntry, Ternary
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.p4runtime_shim.codec import Codec
from controller.programs import ProgramBundle, p4c_command, p4c_output
from controller.target import Kind
from p4src.messages import p4runtime_pb2 as p4
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
        self._stop()

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
        self._codec = Codec(bundle.p4info)
        self._ids = {counter.preamble.name: counter.preamble.id for counter in bundle.p4info.counters}
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
        row = self._row(write.table, write.entry)
        match write:
            case Insert():
                self._write("INSERT", row)
            case Modify():
                self._write("MODIFY", row)
            case Delete():
                self._write("DELETE", row)

    def set_default(self, table: str, invocation: ir.Invocation) -> None:
        """Set what a miss runs."""
        self._write("MODIFY", TableEntry(table, {}, *self._call(invocation), default=True))

    def add_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""
        self._write("INSERT", MulticastGroup(group, tuple(members)))

    def registers(self) -> dict[str, list[int]]:
        """Return nothing: they cannot be read."""
        return {}

    def state(self, entries: Mapping[str, Sequence[ir.ConstEntry]]) -> State:
        """Read all counters; `entries` are those with direct counters, by table."""
        indirect = [name for name, counter in self._program.counters.items() if counter.table is None]
        return State(
            {},
            {name: self._cells(name) for name in indirect},
            {table: [self._hits(table, entry) for entry in of] for table, of in entries.items()},
        )

    def _cells(self, name: str) -> list[tuple[int, int]]:
        wanted = p4.Entity(counter_entry=p4.CounterEntry(counter_id=self._ids[name]))
        found = sorted(
            (each.counter_entry.index.index, _counted(each.counter_entry.data))
            for each in self._client.read([wanted])
        )
        assert [index for index, _ in found] == list(range(self._program.counters[name].size))
        return [count for _, count in found]

    def _hits(self, table: str, entry: ir.ConstEntry) -> tuple[int, int]:
        row = self._codec.encode(self._row(table, entry)).table_entry
        wanted = p4.Entity(direct_counter_entry=p4.DirectCounterEntry(table_entry=row))
        (found,) = self._client.read([wanted])
        return _counted(found.direct_counter_entry.data)

    def _write(self, kind: Kind, entry: TableEntry | MulticastGroup) -> None:
        self._client.write(kind, [self._codec.encode(entry)])

    def _row(self, table: str, entry: ir.ConstEntry) -> TableEntry:
        keys = self._program.tables[table].keys
        fields = dict(_fields(keys, entry.patterns))
        ternary = any(key.match in ("ternary", "range", "optional") for key in keys)
        return TableEntry(
            table, fields, *self._call(entry.invocation), priority=entry.priority + 1 if ternary else 0
        )

    def _call(self, invocation: ir.Invocation) -> tuple[str, dict[str, int]]:
        params = [param.name for param in self._program.actions[invocation.action].params]
        return invocation.action, dict(zip(params, invocation.args, strict=True))


def _counted(data: Any) -> tuple[int, int]:
    return data.packet_count, data.byte_count


def _fields(keys: Sequence[ir.Key], patterns: Sequence[ir.Pattern]) -> Iterator[tuple[str, Match]]:
    for key, pattern in zip(keys, patterns, strict=True):
        width = key.expr.type.width if isinstance(key.expr.type, ir.Bits) else 1
        mask = pattern.mask if pattern.kind == "mask" else (1 << width) - 1
        match key.match:
            case _ if pattern.kind == "any":
                continue
            case "exact":
                yield key.name, pattern.value
            case "lpm" if mask:
                yield key.name, Lpm(pattern.value, mask.bit_count())
            case "ternary" if mask:
                yield key.name, Ternary(pattern.value & mask, mask)
