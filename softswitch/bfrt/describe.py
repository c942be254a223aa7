"""Tables as BF Runtime's JSON describes them to clients: names, ids and types of all fields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

NUMBERS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
"""Types of numbers, beside ``bytes``, and their bits."""


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a key or of data.

    Args:
        id: The number that messages carry.
        name: What clients call it.
        type: ``bytes`` (a number of `width` bits), one of `NUMBERS`, ``bool`` or ``string``.
        width: Bits of a number.
        match: Of a key: Exact, Ternary, LPM, Range or Optional.
        repeated: It is a list.
        field_class: ``register_data`` for what a chip has once for each pipe.
    """

    id: int
    name: str
    type: str = "bytes"
    width: int = 0
    match: str = ""
    repeated: bool = False
    field_class: str = ""

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return NUMBERS.get(self.type, self.width)


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a table, with its parameters."""

    id: int
    name: str
    data: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its key, the data of all entries, and the data that belong to an action."""

    id: int
    name: str
    kind: str
    size: int
    key: tuple[Column, ...]
    data: tuple[Column, ...]
    actions: tuple[Action, ...] = ()
    operations: tuple[str, ...] = ()


def described(tables: Iterable[Table]) -> dict[str, Any]:
    """Return the JSON of some tables."""
    return {"schema_version": "1.0.0", "tables": [_table(table) for table in tables], "learn_filters": []}


def _table(table: Table) -> dict[str, Any]:
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
