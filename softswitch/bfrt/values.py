"""Decode and encode keys and data of entries: numbers, lists, booleans and strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from p4src.messages import bfruntime
from softswitch.p4runtime.errors import AlreadyExists, InvalidArgument, NotFound, Unimplemented
from softswitch.p4runtime.schema import Numbered

NUMBERS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
"""Width in bits of each number type except ``bytes``."""


@dataclass(frozen=True, slots=True)
class Column(Numbered):
    """A field of a key or of data.

    Args:
        id: The field's number in messages.
        name: The field's name for clients.
        type: ``bytes`` (a number of `width` bits), one of `NUMBERS`, ``bool`` or ``string``.
        width: Bits of a number.
        match: Match kind of a key field: Exact, Ternary, LPM, Range or Optional.
        repeated: True for a list.
        field_class: ``register_data`` for data that a chip holds once per pipe.
    """

    type: str = "bytes"
    width: int = 0
    match: str = ""
    repeated: bool = False
    field_class: str = ""

    @property
    def bits(self) -> int:
        """Width of the field in bits; meaningful only if the field is a number."""
        return NUMBERS.get(self.type, self.width)


@dataclass(frozen=True, slots=True)
class ActionSpec(Numbered):
    """An action of a table, with its parameters."""

    data: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class TableSpec(Numbered):
    """A table: its key, the data fields of all entries, and its actions with their own data fields."""

    kind: str
    size: int
    key: tuple[Column, ...]
    data: tuple[Column, ...]
    actions: tuple[ActionSpec, ...] = ()
    operations: tuple[str, ...] = ()


def described(tables: Iterable[TableSpec]) -> dict[str, Any]:
    """Return the description of tables in BF Runtime's JSON format."""
    return {"schema_version": "1.0.0", "tables": [_table(table) for table in tables], "learn_filters": []}


def _table(table: TableSpec) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "name": table.name,
        "id": table.id,
        "table_type": table.kind,
        "size": table.size,
        "annotations": [],
        "depends_on": [],
        "key": [_key(column) for column in table.key],
        "data": [{"mandatory": False, "read_only": False, "singleton": _data(c)} for c in table.data],
        "supported_operations": list(table.operations),
        "attributes": [],
    }
    if table.actions:
        whole["action_specs"] = [
            {"id": a.id, "name": a.name, "annotations": [], "data": [_data(c) for c in a.data]}
            for a in table.actions
        ]
    return whole


def _key(column: Column) -> dict[str, Any]:
    return {
        "id": column.id,
        "name": column.name,
        "repeated": False,
        "annotations": [],
        "mandatory": False,
        "match_type": column.match,
        "type": _type(column),
    }


def _data(column: Column) -> dict[str, Any]:
    annotations = [{"name": "$bfrt_field_class", "value": column.field_class}] if column.field_class else []
    return {
        "id": column.id,
        "name": column.name,
        "repeated": column.repeated,
        "mandatory": False,
        "read_only": False,
        "annotations": annotations,
        "type": _type(column),
    }


def _type(column: Column) -> dict[str, Any]:
    return {"type": "bytes", "width": column.width} if column.type == "bytes" else {"type": column.type}


Value = int | bool | str | list[int] | list[bool]


def bytes_of(value: int, column: Column) -> bytes:
    """Encode a number for messages, in as many whole bytes as the field's width takes."""
    return value.to_bytes((column.bits + 7) // 8, "big")


def number(data: bytes, column: Column) -> int:
    """Decode a number of a message. Raises InvalidArgument if it does not fit the field."""
    value = int.from_bytes(data, "big")
    if value >> column.bits:
        raise InvalidArgument(f"{value:#x} is too large for '{column.name}'; it has {column.bits} bits")
    return value


def column_of(columns: Iterable[Column], field_id: int, table: TableSpec) -> Column:
    """Return the field with this number. Raises InvalidArgument if there is none."""
    known = tuple(columns)
    for column in known:
        if column.id == field_id:
            return column
    listing = ", ".join(f"{column.id} ({column.name})" for column in known) or "none"
    raise InvalidArgument(f"'{table.name}' has no such field {field_id}; valid fields are {listing}")


def read_data(fields: Iterable[Any], columns: Sequence[Column], table: TableSpec) -> dict[str, Value]:
    """Return the values of data fields by name.

    Raises InvalidArgument for a field that `columns` lacks, and for a value of the wrong type or size.
    """
    found: dict[str, Value] = {}
    for field in fields:
        column = column_of(columns, field.field_id, table)
        found[column.name] = _value(field, column)
    return found


def _value(field: Any, column: Column) -> Value:
    given = field.WhichOneof("value")
    wanted = _oneof(column)
    if given is None and column.repeated:
        return []
    if given != wanted:
        raise InvalidArgument(f"'{column.name}' takes {wanted}, not {given or 'nothing'}")
    match wanted:
        case "stream":
            return number(field.stream, column)
        case "int_arr_val":
            return list(field.int_arr_val.val)
        case "bool_arr_val":
            return list(field.bool_arr_val.val)
        case "str_val":
            return str(field.str_val)
    return bool(field.bool_val)


def _oneof(column: Column) -> str:
    if column.type == "bool":
        return "bool_arr_val" if column.repeated else "bool_val"
    if column.type == "string":
        return "str_val"
    return "int_arr_val" if column.repeated else "stream"


def write_data(to: Any, values: Mapping[str, Value], columns: Iterable[Column]) -> None:
    """Add to the data message `to` a field for each of `columns` that has a value in `values`."""
    for column in columns:
        if column.name not in values:
            continue
        value = values[column.name]
        field = to.fields.add(field_id=column.id)
        match _oneof(column):
            case "stream":
                assert isinstance(value, int)
                field.stream = bytes_of(value, column)
            case "int_arr_val" | "bool_arr_val" as kind:
                assert isinstance(value, list)
                getattr(field, kind).SetInParent()
                getattr(field, kind).val.extend(value)
            case kind:
                setattr(field, kind, value)


def exact_key(entry: Any, table: TableSpec) -> tuple[int, ...] | None:
    """Return the key of an entry of a table with exact fields, or None if the entry has no key.

    Raises InvalidArgument if a field of the key is unknown, missing, not exact or too large.
    """
    if not entry.HasField("key"):
        return None
    found: dict[int, int] = {}
    for field in entry.key.fields:
        column = column_of(table.key, field.field_id, table)
        if field.WhichOneof("match_type") not in ("exact", None):
            raise InvalidArgument(f"'{column.name}' takes an exact value")
        found[column.id] = number(field.exact.value, column)
    missing = [column.name for column in table.key if column.id not in found]
    if missing:
        raise InvalidArgument(f"a key of '{table.name}' lacks '{missing[0]}'")
    return tuple(found[column.id] for column in table.key)


def exact_entry(table: TableSpec, key: Sequence[int], values: Mapping[str, Value]) -> Any:
    """Encode an entry of a table with exact fields."""
    entry = bfruntime.TableEntry(table_id=table.id)
    for column, value in zip(table.key, key, strict=True):
        entry.key.fields.add(field_id=column.id).exact.value = bytes_of(value, column)
    entry.data.SetInParent()
    write_data(entry.data, values, table.data)
    return entry


Row = dict[str, Value]


class Rows(Protocol):
    """The entries of one table. A method that raises RequestError has changed nothing."""

    table: TableSpec

    def write(self, kind: int, entry: Any) -> None:
        """Apply an update of one entry or, without a key, of all entries."""

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the entry with the given key or, without a key, all entries."""

    def usage(self) -> int:
        """Return the number of entries."""


class Stored:
    """A table with an exact key that keeps its entries in `rows`; subclasses update the switch."""

    def __init__(self, table: TableSpec) -> None:
        self.table = table
        self.rows: dict[tuple[int, ...], Row] = {}

    def write(self, kind: int, entry: Any) -> None:
        """Apply an update; see `Rows.write`."""
        key = exact_key(entry, self.table)
        if key is None:
            if kind != bfruntime.DELETE:
                raise InvalidArgument(f"an entry of '{self.table.name}' must have a key")
            for known in list(self.rows):
                self._replace(known, None)
            return
        columns = (*self.table.data, *(c for action in self.table.actions for c in action.data))
        given = read_data(entry.data.fields, columns, self.table)
        old = self.rows.get(key)
        if kind == bfruntime.INSERT and old is not None:
            raise AlreadyExists(f"'{self.table.name}' has an entry {_text(key)} already")
        if kind in (bfruntime.MODIFY, bfruntime.MODIFY_INC, bfruntime.DELETE) and old is None:
            raise NotFound(f"'{self.table.name}' has no entry {_text(key)}")
        match kind:
            case bfruntime.INSERT | bfruntime.MODIFY | bfruntime.INSERT_OR_MODIFY:
                self._replace(key, {**(old or {}), **given})
            case bfruntime.MODIFY_INC:
                assert old is not None
                flags = entry.table_flags.mod_del or entry.table_mod_inc_flag.type == 1
                self._replace(key, self.incremented(old, given, takes_away=bool(flags)))
            case bfruntime.DELETE:
                self._replace(key, None)
            case _:
                raise Unimplemented(
                    f"this switch does not support updates of kind {kind} of '{self.table.name}'"
                )

    def _replace(self, key: tuple[int, ...], row: Row | None) -> None:
        self.check(key, row)
        if row is None:
            del self.rows[key]
        else:
            self.rows[key] = row
        self.changed(key)

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Raise RequestError if setting the row of `key` to `row` (None: deleting it) is not allowed."""

    def changed(self, key: tuple[int, ...]) -> None:
        """Update the switch after a row is added, changed or deleted."""

    def incremented(self, old: Row, given: Row, *, takes_away: bool) -> Row:
        """Return `old` with the elements of `given` added to its lists or, with `takes_away`, removed."""
        raise Unimplemented(f"'{self.table.name}' has no lists to add to")

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield entries; see `Rows.read`."""
        key = exact_key(entry, self.table)
        if key is not None and key not in self.rows:
            raise NotFound(f"'{self.table.name}' has no entry {_text(key)}")
        for known in list(self.rows) if key is None else [key]:
            yield exact_entry(self.table, known, self.shown(known))

    def shown(self, key: tuple[int, ...]) -> Row:
        """Return a row in the form that clients read."""
        return self.rows[key]

    def usage(self) -> int:
        """Return the number of rows."""
        return len(self.rows)


class RefusedRows(Stored):
    """A table of the chip that this switch does not implement: it is empty and refuses entries."""

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Raise an error for every entry."""
        raise Unimplemented(f"this switch does not implement table '{self.table.name}': it stays empty")


def _text(key: tuple[int, ...]) -> str:
    return ", ".join(map(str, key))
