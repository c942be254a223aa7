"""The program's registers and counters, with an entry for each index.

The fields of a register are the scalars of its cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from p4src.messages import bfruntime
from softswitch.bfrt.values import Column, Row, Rows, Table, exact_entry, exact_key, read_data
from softswitch.compiler import ir
from softswitch.p4runtime.errors import InvalidArgument, OutOfRange, Unimplemented
from softswitch.p4runtime.schema import Counter, Register
from softswitch.p4runtime.state import Bundle, Device

COUNTER_BYTES, COUNTER_PACKETS, COUNTER_INDEX, REGISTER_INDEX = 65553, 65554, 65556, 65557
"""Numbers of fields, which no parameter of an action has."""
BYTES = Column(COUNTER_BYTES, "$COUNTER_SPEC_BYTES", "uint64")
PACKETS = Column(COUNTER_PACKETS, "$COUNTER_SPEC_PKTS", "uint64")


def cells(device: Device, bundle: Bundle, prefix: str) -> list[Rows]:
    """Return the tables of a program's registers and counters; `prefix` goes before their names."""
    schema = bundle.schema
    registers = [_Registers(device, bundle, register, prefix) for register in schema.registers.values()]
    counters = [_Counters(device, bundle, counter, prefix) for counter in schema.counters.values()]
    return [*registers, *counters]


class _Cells:
    """A table with an entry for each index, which always exists."""

    table: Table

    def __init__(self, device: Device, size: int) -> None:
        self._device = device
        self._size = size

    def write(self, kind: int, entry: Any) -> None:
        """Set a cell's given fields; a deletion sets a cell, or all, to what it began with."""
        key = exact_key(entry, self.table)
        indices: Sequence[int] = range(self._size) if key is None else [self._checked(key[0])]
        if kind in (bfruntime.DELETE, bfruntime.RESET):
            with self._device.switch.locked():
                self.clear(indices)
            return
        if kind not in (bfruntime.INSERT, bfruntime.MODIFY, bfruntime.INSERT_OR_MODIFY):
            raise Unimplemented(f"an update of kind {kind} of '{self.table.name}'")
        if key is None:
            raise InvalidArgument(f"an entry of '{self.table.name}' has a key")
        given = read_data(entry.data.fields, self.table.data, self.table)
        with self._device.switch.locked():
            for index in indices:
                self.set(index, {**self.get(index), **given})

    def _checked(self, index: int) -> int:
        if index >= self._size:
            raise OutOfRange(f"'{self.table.name}' has {self._size} cells; there is no cell {index}")
        return index

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield a cell, or all."""
        key = exact_key(entry, self.table)
        for index in range(self._size) if key is None else [self._checked(key[0])]:
            with self._device.switch.locked():
                found = self.get(index)
            yield exact_entry(self.table, (index,), found)

    def usage(self) -> int:
        """Return the number of cells."""
        return self._size

    def clear(self, indices: Iterable[int]) -> None:
        """Set cells to what they began with."""
        raise NotImplementedError

    def get(self, index: int) -> Row:
        """Return a cell's fields."""
        raise NotImplementedError

    def set(self, index: int, row: Row) -> None:
        """Set a cell's fields."""
        raise NotImplementedError


class _Registers(_Cells):
    def __init__(self, device: Device, bundle: Bundle, register: Register, prefix: str) -> None:
        array = bundle.program.register_arrays[register.name]
        super().__init__(device, array.size)
        self._bundle = bundle
        self._parts = [bundle.program.registers[part] for part in array.parts]
        names = [part.name.removeprefix(register.name).lstrip("#") or "f1" for part in self._parts]
        self._columns = tuple(
            Column(number, f"{register.name}.{name}", "bytes", _bits(part.type), field_class="register_data")
            for number, (name, part) in enumerate(zip(names, self._parts, strict=True), 1)
        )
        index = (Column(REGISTER_INDEX, "$REGISTER_INDEX", "uint32", match="Exact"),)
        name = f"{prefix}{register.name}"
        self.table = Table(
            register.id, name, "Register", array.size, index, self._columns, operations=("Sync",)
        )

    def _row(self, values: Sequence[int]) -> Row:
        columns = zip(self._columns, values, strict=True)
        return {column.name: value & ((1 << column.bits) - 1) for column, value in columns}

    def get(self, index: int) -> Row:
        """Return the scalars of a cell."""
        return self._row(self._bundle.read_register(self.table.name.split(".", 1)[1], index))

    def clear(self, indices: Iterable[int]) -> None:
        """Set cells to what they began with: here one scalar after the other, for they are many."""
        for part in self._parts:
            for index in indices:
                self._bundle.pipeline.write_register(part.name, index, part.initial)

    def set(self, index: int, row: Row) -> None:
        """Set the scalars of a cell."""
        for part, column in zip(self._parts, self._columns, strict=True):
            value = cast("int", row[column.name])
            if isinstance(part.type, ir.Bits) and part.type.signed and value >> (column.bits - 1):
                value -= 1 << column.bits
            self._bundle.pipeline.write_register(part.name, index, value)


def _bits(type_: ir.Type) -> int:
    return type_.width if isinstance(type_, ir.Bits) else 1


class _Counters(_Cells):
    def __init__(self, device: Device, bundle: Bundle, counter: Counter, prefix: str) -> None:
        super().__init__(device, counter.size)
        self._bundle = bundle
        self._name = counter.name
        data = counter_columns(bundle.program.counters[counter.name].unit)
        index = (Column(COUNTER_INDEX, "$COUNTER_INDEX", "uint32", match="Exact"),)
        self.table = Table(
            counter.id, f"{prefix}{counter.name}", "Counter", counter.size, index, data, operations=("Sync",)
        )

    def get(self, index: int) -> Row:
        """Return the packets and bytes of a cell."""
        packets, bytes_ = self._bundle.pipeline.read_counter(self._name, index)
        return {PACKETS.name: packets, BYTES.name: bytes_}

    def clear(self, indices: Iterable[int]) -> None:
        """Set cells to zero."""
        for index in indices:
            self._bundle.pipeline.write_counter(self._name, index, 0, 0)

    def set(self, index: int, row: Row) -> None:
        """Set the packets and bytes of a cell."""
        numbers = (cast("int", row[column.name]) for column in (PACKETS, BYTES))
        self._bundle.pipeline.write_counter(self._name, index, *numbers)


def counter_columns(unit: str) -> tuple[Column, ...]:
    """Return the fields of a counter of this unit: packets, bytes or both."""
    return tuple(c for c, what in ((BYTES, "bytes"), (PACKETS, "packets")) if what in unit.lower())
