"""The program's match-action tables, registers and counters.

Table entries are converted to P4Runtime entries, which the P4Runtime service checks and stores, and back.
Registers and counters have an entry for each index; the fields of a register are the scalars of its cell. If
entries overlap, the smallest ``$MATCH_PRIORITY`` wins, not the largest as in P4Runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from p4src.messages import bfruntime
from p4src.messages import p4runtime_pb2 as p4
from softswitch.bfrt.values import (
    ActionSpec,
    Column,
    Row,
    Rows,
    TableSpec,
    bytes_of,
    column_of,
    exact_entry,
    exact_key,
    number,
    read_data,
    write_data,
)
from softswitch.compiler import ir
from softswitch.p4runtime import entities
from softswitch.p4runtime.errors import InvalidArgument, NotFound, OutOfRange, PermissionDenied, Unimplemented
from softswitch.p4runtime.schema import ArrayInfo, TableSchema
from softswitch.p4runtime.state import Bundle, Device
from softswitch.p4runtime.translate import ANY, encode, match_field

COUNTER_BYTES, COUNTER_PACKETS, COUNTER_INDEX, REGISTER_INDEX = 65553, 65554, 65556, 65557
"""Field ids for counters and registers; no action parameter has one of these ids."""
BYTES = Column(COUNTER_BYTES, "$COUNTER_SPEC_BYTES", "uint64")
PACKETS = Column(COUNTER_PACKETS, "$COUNTER_SPEC_PKTS", "uint64")


def cells(device: Device, bundle: Bundle, prefix: str) -> list[Rows]:
    """Return the tables of a program's registers and counters; `prefix` precedes their names."""
    schema = bundle.schema
    registers = [_Registers(device, bundle, register, prefix) for register in schema.registers.values()]
    counters = [_Counters(device, bundle, counter, prefix) for counter in schema.counters.values()]
    return [*registers, *counters]


class _Cells:
    """The table of a register or counter array: one entry for each index. The entries always exist."""

    table: TableSpec

    def __init__(self, device: Device, size: int) -> None:
        self._device = device
        self._size = size

    def write(self, kind: int, entry: Any) -> None:
        """Set the given fields of one cell.

        A deletion or a reset restores the initial values of one cell or, without a key, of all cells.
        """
        key = exact_key(entry, self.table)
        indices: Sequence[int] = range(self._size) if key is None else [self._checked(key[0])]
        if kind in (bfruntime.DELETE, bfruntime.RESET):
            with self._device.switch.locked():
                self.clear(indices)
            return
        if kind not in (bfruntime.INSERT, bfruntime.MODIFY, bfruntime.INSERT_OR_MODIFY):
            raise Unimplemented(f"this switch does not support updates of kind {kind} of '{self.table.name}'")
        if key is None:
            raise InvalidArgument(f"an entry of '{self.table.name}' must have a key")
        given = read_data(entry.data.fields, self.table.data, self.table)
        with self._device.switch.locked():
            for index in indices:
                self.set(index, {**self.get(index), **given})

    def _checked(self, index: int) -> int:
        if index >= self._size:
            raise OutOfRange(f"'{self.table.name}' has {self._size} cells; there is no cell {index}")
        return index

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the entry of one cell or, without a key, the entries of all cells."""
        key = exact_key(entry, self.table)
        for index in range(self._size) if key is None else [self._checked(key[0])]:
            with self._device.switch.locked():
                found = self.get(index)
            yield exact_entry(self.table, (index,), found)

    def usage(self) -> int:
        """Return the number of cells."""
        return self._size

    def clear(self, indices: Iterable[int]) -> None:
        """Reset cells to their initial values."""
        raise NotImplementedError

    def get(self, index: int) -> Row:
        """Return a cell's fields."""
        raise NotImplementedError

    def set(self, index: int, row: Row) -> None:
        """Set a cell's fields."""
        raise NotImplementedError


class _Registers(_Cells):
    def __init__(self, device: Device, bundle: Bundle, register: ArrayInfo, prefix: str) -> None:
        array = bundle.program.register_arrays[register.name]
        super().__init__(device, array.size)
        self._bundle = bundle
        self._parts = [bundle.program.registers[part] for part in array.parts]
        names = [part.name.removeprefix(register.name).lstrip("#") or "f1" for part in self._parts]
        self._columns = tuple(
            Column(
                number,
                f"{register.name}.{name}",
                "bytes",
                ir.width_of(part.type),
                field_class="register_data",
            )
            for number, (name, part) in enumerate(zip(names, self._parts, strict=True), 1)
        )
        index = (Column(REGISTER_INDEX, "$REGISTER_INDEX", "uint32", match="Exact"),)
        name = f"{prefix}{register.name}"
        self.table = TableSpec(
            register.id, name, "Register", array.size, index, self._columns, operations=("Sync",)
        )

    def _row(self, values: Sequence[int]) -> Row:
        columns = zip(self._columns, values, strict=True)
        return {column.name: value & ((1 << column.bits) - 1) for column, value in columns}

    def get(self, index: int) -> Row:
        """Return the scalars of a cell."""
        return self._row(self._bundle.read_register(self.table.name.split(".", 1)[1], index))

    def clear(self, indices: Iterable[int]) -> None:
        """Reset the cells at `indices` to their initial values."""
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


class _Counters(_Cells):
    def __init__(self, device: Device, bundle: Bundle, counter: ArrayInfo, prefix: str) -> None:
        super().__init__(device, counter.size)
        self._bundle = bundle
        self._name = counter.name
        data = counter_columns(bundle.program.counters[counter.name].unit)
        index = (Column(COUNTER_INDEX, "$COUNTER_INDEX", "uint32", match="Exact"),)
        self.table = TableSpec(
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


PRIORITY = Column(65537, "$MATCH_PRIORITY", "uint32", match="Exact")
_PRIORITIES = 1 << 24
_MATCHES = {"exact": "Exact", "ternary": "Ternary", "lpm": "LPM", "range": "Range", "optional": "Optional"}


def matching(device: Device, bundle: Bundle, prefix: str) -> list[Rows]:
    """Return the match-action tables of a program, without tables that have an action profile."""
    tables = [table for table in bundle.schema.tables.values() if table.implementation is None]
    return [_Matching(device, bundle, table, prefix) for table in tables]


class _Matching:
    def __init__(self, device: Device, bundle: Bundle, table: TableSchema, prefix: str) -> None:
        self._device = device
        self._own = table
        self._fields = {field.id: field for field in table.fields}
        key = [
            Column(f.id, f.name.replace("$valid$", "$valid"), "bytes", f.width, _MATCHES[f.match])
            for f in table.fields
        ]
        if table.takes_priority:
            key.append(PRIORITY)
        actions = []
        for number_ in table.actions:
            action = bundle.schema.actions[number_]
            params = tuple(Column(p.id, p.name, "bytes", p.width) for p in action.params)
            actions.append(ActionSpec(action.id, action.name, params))
        self._actions = {action.id: action for action in actions}
        direct = bundle.program.tables[table.name].direct_counter
        unit = "" if direct is None else bundle.program.counters[direct].unit
        data = counter_columns(unit)
        operations = ("SyncCounters",) if data else ()
        self.table = TableSpec(
            table.id,
            f"{prefix}{table.name}",
            "MatchAction_Direct",
            table.size,
            tuple(key),
            data,
            tuple(actions),
            operations,
        )

    # ------------------------------------------------------------------ writing

    def write(self, kind: int, entry: Any) -> None:
        """Apply an update of one entry or of the default entry.

        A deletion without a key deletes all entries except the default one.
        """
        if entry.is_default_entry:
            self._write_default(kind, entry)
            return
        if not entry.HasField("key"):
            if kind != bfruntime.DELETE:
                raise InvalidArgument(f"an entry of '{self.table.name}' must have a key")
            self._delete_all()
            return
        wanted = self._key(entry)
        old = self._found(wanted)
        match kind:
            case bfruntime.INSERT:
                self._apply(p4.Update.INSERT, self._filled(wanted, entry, None))
            case bfruntime.MODIFY | bfruntime.INSERT_OR_MODIFY:
                if old is None and kind == bfruntime.MODIFY:
                    raise NotFound(f"'{self.table.name}' holds no entry with this match to modify")
                filled = self._filled(wanted, entry, old)
                self._apply(p4.Update.INSERT if old is None else p4.Update.MODIFY, filled)
            case bfruntime.DELETE:
                self._apply(p4.Update.DELETE, wanted)
            case _:
                raise Unimplemented(
                    f"this switch does not support updates of kind {kind} of '{self.table.name}'"
                )

    def _write_default(self, kind: int, entry: Any) -> None:
        message = p4.TableEntry(table_id=self._own.id, is_default_action=True)
        if kind in (bfruntime.DELETE, bfruntime.RESET):
            if self._own.const_default:
                return  # the entry stays unchanged
        else:
            message = self._filled(message, entry, None)
        self._apply(p4.Update.MODIFY, message)

    def _delete_all(self) -> None:
        request = p4.TableEntry(table_id=self._own.id)
        found = [each.table_entry for each in self._read(request) if not each.table_entry.is_default_action]
        if found and self._own.const_entries:
            raise PermissionDenied(f"the entries of '{self.table.name}' are constant in the program")
        for message in found:
            wanted = p4.TableEntry(table_id=message.table_id, match=message.match, priority=message.priority)
            self._apply(p4.Update.DELETE, wanted)

    def _apply(self, kind: int, message: Any) -> None:
        entities.write(self._device, p4.Update(type=kind, entity=p4.Entity(table_entry=message)))

    def _read(self, message: Any) -> list[Any]:
        return entities.read(self._device, p4.Entity(table_entry=message))

    def _found(self, wanted: Any) -> Any:
        found = self._read(wanted)
        return found[0].table_entry if found else None

    def _key(self, entry: Any) -> Any:
        """Return a P4Runtime entry with the key of `entry`, but without key fields that match any value."""
        message = p4.TableEntry(table_id=self._own.id)
        priority = 0
        for field in entry.key.fields:
            column = column_of(self.table.key, field.field_id, self.table)
            if column is PRIORITY:
                priority = number(field.exact.value, column)
            else:
                self._match(message, field, column)
        if self._own.takes_priority:
            if priority >= _PRIORITIES:
                raise InvalidArgument(f"$MATCH_PRIORITY {priority}: want 0 to {_PRIORITIES - 1}")
            message.priority = _PRIORITIES - priority
        return message

    def _match(self, message: Any, field: Any, column: Column) -> None:
        given = field.WhichOneof("match_type")
        wanted = column.match.lower()
        if given != wanted:
            raise InvalidArgument(f"'{column.name}' takes a match of kind {wanted}, not {given or 'nothing'}")
        full = (1 << column.bits) - 1
        match wanted:
            case "exact":
                pattern = ir.Pattern("exact", number(field.exact.value, column))
            case "ternary":
                mask = number(field.ternary.mask, column)
                pattern = (
                    ir.Pattern("mask", number(field.ternary.value, column) & mask, mask) if mask else ANY
                )
            case "lpm":
                length = field.lpm.prefix_len
                if not 0 <= length <= column.bits:
                    raise InvalidArgument(
                        f"prefix length {length} is negative or above the width of '{column.name}'"
                    )
                mask = full >> (column.bits - length) << (column.bits - length)
                pattern = ir.Pattern("mask", number(field.lpm.value, column) & mask, mask) if length else ANY
            case "range":
                low, high = number(field.range.low, column), number(field.range.high, column)
                pattern = ANY if (low, high) == (0, full) else ir.Pattern("range", low, high)
            case _:
                value = field.optional.value
                pattern = ir.Pattern("exact", number(value, column)) if field.optional.is_valid else ANY
        match_field(message.match, self._fields[column.id], pattern)

    def _filled(self, wanted: Any, entry: Any, old: Any) -> Any:
        """Return the P4Runtime entry `wanted` with the action and counter values of the BF Runtime `entry`.

        Action parameters that `entry` does not give are taken from `old`, the P4Runtime entry in the switch.
        """
        message = p4.TableEntry()
        message.CopyFrom(wanted)
        action = self._action(entry.data.action_id, old)
        columns = (*action.data, *self.table.data) if action else self.table.data
        given = read_data(entry.data.fields, columns, self.table)
        counts = [given.pop(column.name, None) for column in (PACKETS, BYTES)]
        if action is not None and (old is None or given or old.action.action.action_id != action.id):
            self._fill_action(message, action, given, old)
        if any(count is not None for count in counts):
            message.counter_data.packet_count, message.counter_data.byte_count = (c or 0 for c in counts)
        return message

    def _action(self, action_id: int, old: Any) -> ActionSpec | None:
        number_ = action_id or (old.action.action.action_id if old is not None else 0)
        if not number_:
            raise InvalidArgument(f"an entry of '{self.table.name}' must name an action")
        if number_ not in self._actions:
            known = ", ".join(f"{a.id} ({a.name})" for a in self._actions.values())
            raise InvalidArgument(f"'{self.table.name}' has no action {number_}; it has {known}")
        return self._actions[number_]

    def _fill_action(self, message: Any, action: ActionSpec, given: dict[str, Any], old: Any) -> None:
        kept = {}
        if old is not None and old.action.action.action_id == action.id:
            kept = {param.param_id: param.value for param in old.action.action.params}
        message.action.action.action_id = action.id
        for column in action.data:
            value = encode(given[column.name]) if column.name in given else kept.get(column.id)
            # 0 as in the chip's drivers: published controllers omit parameters.
            message.action.action.params.add(param_id=column.id, value=value or encode(0))

    # ------------------------------------------------------------------ reading

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the entry with the given key, the default entry, or all entries except the default one."""
        request = self._key(entry) if entry.HasField("key") else p4.TableEntry(table_id=self._own.id)
        request.is_default_action = entry.is_default_entry
        if self.table.data:
            request.counter_data.SetInParent()
        found = self._read(request)
        if entry.HasField("key") and not found:
            raise NotFound(f"'{self.table.name}' holds no entry with this match")
        for each in found:
            yield self._entry_of(each.table_entry, key_only=entry.table_flags.key_only)

    def _entry_of(self, message: Any, *, key_only: bool) -> Any:
        entry = bfruntime.TableEntry(table_id=self.table.id, is_default_entry=message.is_default_action)
        if not message.is_default_action:
            matches = {match.field_id: match for match in message.match}
            for column in self.table.key:
                field = entry.key.fields.add(field_id=column.id)
                if column is PRIORITY:
                    field.exact.value = bytes_of(_PRIORITIES - message.priority, column)
                else:
                    _write_match(field, matches.get(column.id), column)
        if key_only:
            return entry
        entry.data.SetInParent()
        if message.action.action.action_id:
            action = self._actions[message.action.action.action_id]
            entry.data.action_id = action.id
            params = {
                param.param_id: int.from_bytes(param.value, "big") for param in message.action.action.params
            }
            write_data(entry.data, {c.name: params[c.id] for c in action.data}, action.data)
        counts = message.counter_data
        values = {PACKETS.name: counts.packet_count, BYTES.name: counts.byte_count}
        write_data(entry.data, values, self.table.data)
        return entry

    def usage(self) -> int:
        """Return the number of entries, without the default entry."""
        found = self._read(p4.TableEntry(table_id=self._own.id))
        return sum(not each.table_entry.is_default_action for each in found)


def _write_match(field: Any, match: Any, column: Column) -> None:
    """Fill in the BF Runtime key field `field` from `match`, a P4Runtime match; None matches any value."""

    def padded(data: bytes) -> bytes:
        return bytes_of(int.from_bytes(data, "big"), column)

    match column.match:
        case "Exact":
            field.exact.value = padded(match.exact.value)
        case "Ternary":
            field.ternary.value = padded(match.ternary.value if match else b"")
            field.ternary.mask = padded(match.ternary.mask if match else b"")
        case "LPM":
            field.lpm.value = padded(match.lpm.value if match else b"")
            field.lpm.prefix_len = match.lpm.prefix_len if match else 0
        case "Range":
            full = bytes_of((1 << column.bits) - 1, column)
            field.range.low = padded(match.range.low if match else b"")
            field.range.high = padded(match.range.high) if match else full
        case _:
            field.optional.value = padded(match.optional.value if match else b"")
            field.optional.is_valid = match is not None
