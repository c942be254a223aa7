"""Entries, counters, meters and replication of a P4Runtime switch, by the names of our compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from controller.errors import ControllerError
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.p4runtime_shim.codec import Codec
from controller.switches.programs import ProgramBundle
from controller.switches.target import (
    CounterCell,
    Kind,
    Lpm,
    Match,
    MulticastGroup,
    Range,
    TableEntry,
    Ternary,
)
from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.engine.entries import has_priorities
from softswitch.engine.pipeline import MeterRates, MeterReading, PipelineError

Members = Sequence[tuple[int, int]]
"""Members of a multicast group or clone session: the port and the replication id of each copy."""


class P4RuntimePlane:
    """A `Plane` and a `Replication` of `softswitch.stf.control` over P4Runtime.

    They are usable while `client` is the primary controller. `program` is the program as our compiler reads
    it, `bundle` the output of p4c that the switch runs. Every method raises PipelineError if the switch
    refuses the request. Registers are not supported.
    """

    def __init__(self, client: P4RuntimeClient, program: ir.Program, bundle: ProgramBundle) -> None:
        self._client = client
        self._program = program
        self._codec = Codec(bundle.p4info)
        self._meters: dict[str, int] = {each.preamble.name: each.preamble.id for each in bundle.p4info.meters}
        self._inserted: dict[str, list[ir.ConstEntry]] = {}
        self._groups: set[int] = set()
        self._sessions: set[int] = set()

    def insert(self, table: str, entry: ir.ConstEntry) -> None:
        """Add an entry."""
        self._write("INSERT", self._row(table, entry))
        self._inserted.setdefault(table, []).append(entry)

    def modify(self, table: str, entry: ir.ConstEntry) -> None:
        """Set the action of the entry with this match."""
        self._write("MODIFY", self._row(table, entry))

    def delete(self, table: str, entry: ir.ConstEntry) -> None:
        """Remove the entry with this match."""
        self._write("DELETE", self._row(table, entry))
        self._inserted[table] = [
            other
            for other in self._inserted.get(table, ())
            if (other.patterns, other.priority) != (entry.patterns, entry.priority)
        ]

    def entries(self, table: str) -> Sequence[ir.ConstEntry]:
        """Return the entries that were inserted here and not deleted."""
        return tuple(self._inserted.get(table, ()))

    def set_default(self, table: str, invocation: ir.Invocation) -> None:
        """Set the default action of a table."""
        self._write("MODIFY", TableEntry(table, {}, *self._call(invocation), default=True))

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return the numbers of packets and of bytes that a counter cell has counted."""
        with _pipeline_errors():
            (found,) = self._client.read([self._codec.cell(name, index)])
        return _counted(found.counter_entry.data)

    def write_counter(self, name: str, index: int, packets: int, bytes_: int) -> None:
        """Set a counter cell; see `Pipeline.write_counter`."""
        self._write("MODIFY", CounterCell(name, index, packets, bytes_))

    def read_direct_counter(self, table: str, entry: ir.ConstEntry) -> tuple[int, int]:
        """Return the number of packets, and of bytes, that hit an entry."""
        with _pipeline_errors():
            row = self._codec.encode(self._row(table, entry)).table_entry
            wanted = p4.Entity(direct_counter_entry=p4.DirectCounterEntry(table_entry=row))
            (found,) = self._client.read([wanted])
        return _counted(found.direct_counter_entry.data)

    def read_register(self, name: str, index: int) -> int:
        """Raise PipelineError: BMv2 does not offer registers over P4Runtime."""
        raise PipelineError(f"{name}[{index}]: BMv2 has no registers over P4Runtime")

    def write_register(self, name: str, index: int, value: int) -> None:
        """Raise PipelineError: BMv2 does not offer registers over P4Runtime."""
        raise PipelineError(f"{name}[{index}]: BMv2 has no registers over P4Runtime")

    def read_meter(self, name: str, index: int) -> MeterReading:
        """Return the rates of a meter cell."""
        with _pipeline_errors():
            (found,) = self._client.read([p4.Entity(meter_entry=self._meter(name, index))])
        config = found.meter_entry.config
        if not found.meter_entry.HasField("config"):
            return MeterReading()
        return MeterReading(MeterRates(config.cir, config.cburst, config.pir, config.pburst))

    def configure_meter(self, name: str, index: int, rates: MeterRates) -> None:
        """Set the rates of a meter cell."""
        cell = self._meter(name, index)
        cell.config.CopyFrom(
            p4.MeterConfig(cir=rates.cir, cburst=rates.cburst, pir=rates.pir, pburst=rates.pburst)
        )
        with _pipeline_errors():
            self._client.write("MODIFY", [p4.Entity(meter_entry=cell)])

    def _meter(self, name: str, index: int) -> Any:
        return p4.MeterEntry(meter_id=self._meters[name], index=p4.Index(index=index))

    def set_multicast_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""
        self._write("MODIFY" if group in self._groups else "INSERT", MulticastGroup(group, tuple(members)))
        self._groups.add(group)

    def set_clone_session(self, session: int, members: Members | None, truncate: int = 0) -> None:
        """Define a clone session, whose copies are cut to `truncate` bytes (0: not cut).

        With None as `members`, remove the session.
        """
        entry = p4.CloneSessionEntry(session_id=session, packet_length_bytes=truncate)
        for port, instance in members or ():
            entry.replicas.add(egress_port=port, instance=instance)
        replication = p4.PacketReplicationEngineEntry(clone_session_entry=entry)
        known = session in self._sessions
        if members is None:
            kind: Kind = "DELETE"
            self._sessions.discard(session)
        else:
            kind = "MODIFY" if known else "INSERT"
            self._sessions.add(session)
        if known or members is not None:
            with _pipeline_errors():
                self._client.write(kind, [p4.Entity(packet_replication_engine_entry=replication)])

    def _write(self, kind: Kind, entry: TableEntry | MulticastGroup | CounterCell) -> None:
        with _pipeline_errors():
            self._client.write(kind, [self._codec.encode(entry)])

    def _row(self, table: str, entry: ir.ConstEntry) -> TableEntry:
        described = self._program.tables[table]
        fields = dict(_fields(described.keys, entry.patterns))
        priority = entry.priority + 1 if has_priorities(described) else 0
        return TableEntry(table, fields, *self._call(entry.invocation), priority=priority)

    def _call(self, called: ir.Invocation) -> tuple[str, dict[str, int]]:
        params = self._program.actions[called.action].params
        values = (
            arg & ((1 << ir.width_of(param.type)) - 1) for param, arg in zip(params, called.args, strict=True)
        )
        return ir.plain_name(called.action), dict(zip((param.name for param in params), values, strict=True))


@contextmanager
def _pipeline_errors() -> Iterator[None]:
    try:
        yield
    except ControllerError as error:
        raise PipelineError(f"the switch: {error}") from error


def _counted(data: Any) -> tuple[int, int]:
    return data.packet_count, data.byte_count


def _fields(keys: Sequence[ir.Key], patterns: Sequence[ir.Pattern]) -> Iterator[tuple[str, Match]]:
    """Yield the name and the match of each key of an entry, except wildcards."""
    for key, pattern in zip(keys, patterns, strict=True):
        full = (1 << ir.width_of(key.expr.type)) - 1
        mask = pattern.mask if pattern.kind == "mask" else full
        match key.match:
            case _ if pattern.kind == "any":
                continue
            case "lpm" if mask:
                yield key.name, Lpm(pattern.value, mask.bit_count())
            case "ternary" if mask:
                yield key.name, Ternary(pattern.value & mask, mask)
            case "range":
                high = pattern.mask if pattern.kind == "range" else pattern.value
                yield key.name, Range(pattern.value, high)
            case "exact" | "optional":
                yield key.name, pattern.value
