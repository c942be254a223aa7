"""Entries, counters, meters and replication of a P4Runtime switch, by the names of our compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from controller.errors import ControllerError
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.switches.programs import ProgramBundle
from controller.switches.target import Kind
from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.engine.entries import TableEntries
from softswitch.engine.pipeline import MeterRates, MeterReading, PipelineError
from softswitch.p4runtime import cells, translate
from softswitch.p4runtime.schema import from_p4info

Members = Sequence[tuple[int, int]]
"""Members of a multicast group or clone session: the port and the replication id of each copy."""


class P4RuntimePlane:
    """A `Plane` and a `Replication` of `softswitch.stf.control` over P4Runtime.

    They are usable while `client` is the primary controller. `program` is the program as our compiler reads
    it, `bundle` the output of p4c that the switch runs. Every method raises PipelineError if the program has
    no room for the request, or the switch refuses it. Registers are not supported.
    """

    def __init__(self, client: P4RuntimeClient, program: ir.Program, bundle: ProgramBundle) -> None:
        self._client = client
        self._program = program
        self._schema = from_p4info(bundle.p4info, program)
        self._tables = {table.name: table for table in self._schema.tables.values()}
        self._cells = {
            array.name: array.id
            for arrays in (self._schema.counters, self._schema.meters)
            for array in arrays.values()
        }
        self._inserted = {
            name: TableEntries(program, replace(table, entries=())) for name, table in program.tables.items()
        }
        self._groups: set[int] = set()
        self._sessions: set[int] = set()

    def insert(self, table: str, entry: ir.ConstEntry) -> None:
        """Add an entry."""
        self._write("INSERT", table_entry=self._row(table, self._inserted[table].insert(entry)))

    def delete(self, table: str, entry: ir.ConstEntry) -> None:
        """Remove the entry with this match."""
        self._write("DELETE", table_entry=self._row(table, self._inserted[table].delete(entry)))

    def entries(self, table: str) -> Sequence[ir.ConstEntry]:
        """Return the entries that were inserted here and not deleted."""
        return self._inserted[table].entries()

    def set_default(self, table: str, invocation: ir.Invocation) -> None:
        """Set the default action of a table."""
        called = translate.table_action(self._schema, self._unsigned(invocation))
        row = p4.TableEntry(table_id=self._tables[table].id, is_default_action=True, action=called)
        self._write("MODIFY", table_entry=row)

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return the numbers of packets and of bytes that a counter cell has counted."""
        cell = p4.CounterEntry(counter_id=self._cells[name], index=p4.Index(index=index))
        return cells.counts(self._read(counter_entry=cell).counter_entry.data)

    def write_counter(self, name: str, index: int, packets: int, bytes_: int) -> None:
        """Set a counter cell; see `Pipeline.write_counter`."""
        data = p4.CounterData(packet_count=packets, byte_count=bytes_)
        cell = p4.CounterEntry(counter_id=self._cells[name], index=p4.Index(index=index), data=data)
        self._write("MODIFY", counter_entry=cell)

    def read_direct_counter(self, table: str, entry: ir.ConstEntry) -> tuple[int, int]:
        """Return the number of packets, and of bytes, that hit an entry."""
        row = self._row(table, self._inserted[table].find(entry))
        found = self._read(direct_counter_entry=p4.DirectCounterEntry(table_entry=row))
        return cells.counts(found.direct_counter_entry.data)

    def read_register(self, name: str, index: int) -> int:
        """Raise PipelineError: BMv2 does not offer registers over P4Runtime."""
        raise PipelineError(f"{name}[{index}]: BMv2 has no registers over P4Runtime")

    def write_register(self, name: str, index: int, value: int) -> None:
        """Raise PipelineError: BMv2 does not offer registers over P4Runtime."""
        raise PipelineError(f"{name}[{index}]: BMv2 has no registers over P4Runtime")

    def read_meter(self, name: str, index: int) -> MeterReading:
        """Return the rates of a meter cell."""
        found = self._read(meter_entry=self._meter(name, index)).meter_entry
        return MeterReading(cells.rates(found.config) if found.HasField("config") else None)

    def configure_meter(self, name: str, index: int, rates: MeterRates) -> None:
        """Set the rates of a meter cell."""
        cell = self._meter(name, index)
        cells.describe(cell, MeterReading(rates), "config")
        self._write("MODIFY", meter_entry=cell)

    def _meter(self, name: str, index: int) -> Any:
        return p4.MeterEntry(meter_id=self._cells[name], index=p4.Index(index=index))

    def set_multicast_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""
        entry = p4.MulticastGroupEntry(multicast_group_id=group, replicas=_replicas(members))
        kind: Kind = "MODIFY" if group in self._groups else "INSERT"
        self._replicate(kind, multicast_group_entry=entry)
        self._groups.add(group)

    def set_clone_session(self, session: int, members: Members | None, truncate: int = 0) -> None:
        """Define a clone session, whose copies are cut to `truncate` bytes (0: not cut).

        With None as `members`, remove the session.
        """
        known = session in self._sessions
        kind: Kind = "MODIFY" if known else "INSERT"
        if members is None:
            kind = "DELETE"
            self._sessions.discard(session)
        else:
            self._sessions.add(session)
        if known or members is not None:
            copies = _replicas(members or ())
            entry = p4.CloneSessionEntry(session_id=session, packet_length_bytes=truncate, replicas=copies)
            self._replicate(kind, clone_session_entry=entry)

    def _replicate(self, kind: Kind, **entry: Any) -> None:
        self._write(kind, packet_replication_engine_entry=p4.PacketReplicationEngineEntry(**entry))

    def _write(self, kind: Kind, **entity: Any) -> None:
        with _pipeline_errors():
            self._client.write(kind, [p4.Entity(**entity)])

    def _read(self, **entity: Any) -> Any:
        with _pipeline_errors():
            (found,) = self._client.read([p4.Entity(**entity)])
        return found

    def _row(self, table: str, entry: ir.ConstEntry) -> Any:
        """Return the message of an entry whose patterns have the form that `TableEntries` gives them."""
        row = entry._replace(invocation=self._unsigned(entry.invocation))
        return translate.table_entry(self._schema, self._tables[table], row)

    def _unsigned(self, called: ir.Invocation) -> ir.Invocation:
        params = self._program.actions[called.action].params
        values = (
            arg & ((1 << ir.width_of(param.type)) - 1) for param, arg in zip(params, called.args, strict=True)
        )
        return ir.Invocation(called.action, tuple(values))


@contextmanager
def _pipeline_errors() -> Iterator[None]:
    try:
        yield
    except ControllerError as error:
        raise PipelineError(f"the switch: {error}") from error


def _replicas(members: Members) -> list[Any]:
    return [p4.Replica(egress_port=port, instance=instance) for port, instance in members]
