"""Counters and registers of a running program, read for display only: no controller relies on them.

A direct counter has a cell for each entry of its table; other counters and registers have numbered cells.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from controller.errors import NoProgram, Refused, UnknownName
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.p4runtime_shim.codec import Codec
from controller.switches.target import Lpm, Match, Range, TableEntry, Ternary
from p4src.messages import p4runtime_pb2 as p4

Value = int | bool | str | list["Value"]
"""Content of a register's cell; a list has the members of a struct, a tuple or a header, in their order."""

_HEX_FROM = 1 << 16


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of a program: `size` numbered cells or, if direct, a cell for each entry of `table`."""

    name: str
    size: int
    counts_packets: bool
    counts_bytes: bool
    table: str | None = None


@dataclass(frozen=True, slots=True)
class CounterReading:
    """Packets and bytes that a cell has counted; None: not counted.

    `at` is the cell's number or, for a direct counter, a text that describes the table entry.
    """

    at: int | str
    packets: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Register:
    """A register of a program: `size` cells of `bits` bits each; 0 bits: a cell has several members."""

    name: str
    size: int
    bits: int


class CellReader:
    """Reads the counters and registers of the switch to which `client` is connected.

    Raises NoProgram; SwitchError.
    """

    def __init__(self, client: P4RuntimeClient) -> None:
        self._client = client
        self.address = client.address
        p4info = client.p4info()
        if p4info is None:
            client.close()
            raise NoProgram(f"the switch at {client.address} has no program loaded")
        self._codec = Codec(p4info)
        tables = {table.preamble.id: table.preamble.name for table in p4info.tables}
        self._ids = {each.preamble.name: each.preamble.id for each in (*p4info.counters, *p4info.registers)}
        self._table_ids = {name: number for number, name in tables.items()}
        self.counters = {each.preamble.name: _counter(each, each.size, None) for each in p4info.counters} | {
            each.preamble.name: _counter(each, 0, tables[each.direct_table_id])
            for each in p4info.direct_counters
        }
        """By name."""
        self.registers = {
            each.preamble.name: Register(each.preamble.name, each.size, _bits(each.type_spec))
            for each in p4info.registers
        }
        """By name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def counter(self, name: str) -> Counter:
        """Return the counter `name`, or the only one whose name ends with `name`. Raises UnknownName."""
        return self.counters[_full("counter", name, self.counters)]

    def register(self, name: str) -> Register:
        """Return the register `name`, or the only one whose name ends with `name`. Raises UnknownName."""
        return self.registers[_full("register", name, self.registers)]

    def counts(self, counter: Counter, indices: Sequence[int] = ()) -> list[CounterReading]:
        """Read the counter cells with the numbers in `indices`; if `indices` is empty, read all cells.

        A direct counter is always read as a whole. Raises Refused.
        """
        if counter.table is not None:
            return self._direct(counter, counter.table)
        wanted = [p4.CounterEntry(counter_id=self._ids[counter.name], index=_index(i)) for i in _all(indices)]
        found = self._client.read([p4.Entity(counter_entry=each) for each in wanted])
        cells = [entity.counter_entry for entity in found]
        return [_counted(counter, cell.index.index, cell.data) for cell in cells]

    def _direct(self, counter: Counter, table: str) -> list[CounterReading]:
        rows = p4.TableEntry(table_id=self._table_ids[table])
        found = self._read_direct(rows)
        default = p4.TableEntry(table_id=self._table_ids[table], is_default_action=True)
        with contextlib.suppress(Refused):  # not every target counts for the default entry
            found += self._read_direct(default)
        return [_counted(counter, self._described(cell.table_entry), cell.data) for cell in found]

    def _read_direct(self, rows: Any) -> list[Any]:
        entity = p4.Entity(direct_counter_entry=p4.DirectCounterEntry(table_entry=rows))
        return [each.direct_counter_entry for each in self._client.read([entity])]

    def _described(self, entry: Any) -> str:
        if entry.is_default_action:
            return "default entry"
        row = self._codec.decode_key(entry)
        return ", ".join(f"{name} = {_shown(value)}" for name, value in row.match.items()) + _priority(row)

    def values(self, register: Register, indices: Sequence[int] = ()) -> list[tuple[int, Value]]:
        """Read the register cells with the numbers in `indices`; if `indices` is empty, read all cells.

        Returns the number and the content of each cell.

        Raises Refused: P4Runtime allows targets whose registers cannot be read, and BMv2 is one.
        """
        number = self._ids[register.name]
        wanted = [p4.RegisterEntry(register_id=number, index=_index(i)) for i in _all(indices)]
        found = self._client.read([p4.Entity(register_entry=each) for each in wanted])
        cells = [entity.register_entry for entity in found]
        return [(cell.index.index, _value(cell.data)) for cell in cells]


def _full(kind: str, name: str, known: Collection[str]) -> str:
    """Return the name in `known` that equals `name`, or else the only name there that ends with `name`.

    `kind` is the kind of object, for the error message. Raises UnknownName.
    """
    ends = [each for each in known if each == name or each.endswith(f".{name}")]
    if name in ends or len(ends) == 1:
        return name if name in ends else ends[0]
    if ends:
        raise UnknownName(f"{kind} '{name}' may be {' or '.join(ends)}: give more of the name")
    last = {each.rpartition(".")[2]: each for each in known}
    close = difflib.get_close_matches(name.rpartition(".")[2], last, 1)
    hint = (
        f"did you mean '{last[close[0]]}'?"
        if close
        else f"it has {len(known)} of this kind: omit the name to list all"
    )
    raise UnknownName(f"the program has no {kind} '{name}'; {hint}")


def _all(indices: Sequence[int]) -> Sequence[int | None]:
    return indices or (None,)


def _index(index: int | None) -> Any:
    """Return the P4Runtime index of a cell; None selects all cells."""
    return None if index is None else p4.Index(index=index)


def _counter(counter: Any, size: int, table: str | None) -> Counter:
    unit = counter.spec.Unit.Name(counter.spec.unit)
    return Counter(counter.preamble.name, size, unit != "BYTES", unit in ("BYTES", "BOTH"), table)


def _counted(counter: Counter, at: int | str, data: Any) -> CounterReading:
    return CounterReading(
        at,
        int(data.packet_count) if counter.counts_packets else None,
        int(data.byte_count) if counter.counts_bytes else None,
    )


def _bits(type_spec: Any) -> int:
    if type_spec.HasField("bool"):
        return 1
    bits: int = getattr(type_spec.bitstring, type_spec.bitstring.WhichOneof("type_spec") or "bit").bitwidth
    return bits


def _value(data: Any) -> Value:
    match kind := data.WhichOneof("data"):
        case "bool" | "enum" | "error":  # a bool, or a name
            plain: bool | str = getattr(data, kind)
            return plain
        case "struct" | "tuple":
            return [_value(each) for each in getattr(data, kind).members]
        case "header":
            return [int.from_bytes(each, "big") for each in data.header.bitstrings]
        case _:  # "enum_value" or "bitstring"
            return int.from_bytes(getattr(data, kind or "bitstring"), "big")


def _shown(value: Match) -> str:
    def number(of: int) -> str:
        return hex(of) if of >= _HEX_FROM else str(of)

    match value:
        case Lpm():
            return f"{number(value.value)}/{value.prefix_len}"
        case Ternary():
            return f"{number(value.value)} &&& {number(value.mask)}"
        case Range():
            return f"{number(value.low)}..{number(value.high)}"
        case _:
            return number(value)


def _priority(row: TableEntry) -> str:
    return f" (priority {row.priority})" if row.priority else ""
