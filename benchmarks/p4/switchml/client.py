"""A client of BF Runtime for the session's entries and the tests: tables by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from p4src.messages import bfruntime

PATIENCE_S = 300.0
Value = int | bool | str | list[int] | list[bool]
Match = Value | tuple[int, int] | None
"""A field of a key: a value, a value and mask (ternary), a value and length (LPM) or bounds; None: any."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field as the JSON describes it; `match` is empty in data."""

    id: int
    type: str
    bits: int
    repeated: bool
    match: str

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Field:
        """Return the field that a part of the JSON describes."""
        kind = described["type"]["type"]
        bits = (
            described["type"]["width"]
            if kind == "bytes"
            else int(kind.strip("uint") or 0)
            if "uint" in kind
            else 0
        )
        return cls(described["id"], kind, bits, described["repeated"], described.get("match_type", ""))

    def raw(self, value: int) -> bytes:
        """Return a number as whole bytes."""
        return value.to_bytes((self.bits + 7) // 8, "big")


class Client:
    """A client that is bound to the program of a switch. Raises grpc.RpcError for a refused request."""

    def __init__(self, address: str, program: str = "program") -> None:
        self._channel = grpc.insecure_channel(address)
        path = f"/{bfruntime.SERVICE}/"
        unary = self._channel.unary_unary
        self._write = unary(
            f"{path}Write", bfruntime.WriteRequest.SerializeToString, bfruntime.WriteResponse.FromString
        )
        self._read = self._channel.unary_stream(
            f"{path}Read", bfruntime.ReadRequest.SerializeToString, bfruntime.ReadResponse.FromString
        )
        bind = bfruntime.SetConfigRequest(action=bfruntime.BIND)
        bind.config.add(p4_name=program)
        self.configure(bind)
        get_config = unary(
            f"{path}GetForwardingPipelineConfig",
            bfruntime.GetConfigRequest.SerializeToString,
            bfruntime.GetConfigResponse.FromString,
        )
        config = get_config(bfruntime.GetConfigRequest(), timeout=PATIENCE_S)
        described = [config.config[0].bfruntime_info, config.non_p4_config.bfruntime_info]
        tables = [table for text in described for table in json.loads(text)["tables"]]
        self.tables = {table["name"]: Table(self, table) for table in tables}

    def configure(self, request: Any) -> None:
        """Send a SetForwardingPipelineConfigRequest."""
        call = self._channel.unary_unary(
            f"/{bfruntime.SERVICE}/SetForwardingPipelineConfig",
            bfruntime.SetConfigRequest.SerializeToString,
            bfruntime.SetConfigResponse.FromString,
        )
        call(request, timeout=PATIENCE_S)

    def write(self, *updates: tuple[int, Any], **fields: Any) -> None:
        """Send updates, each a kind and an entity, as one batch."""
        request = bfruntime.WriteRequest(**fields)
        for kind, entity in updates:
            update = request.updates.add(type=kind)
            update.entity.CopyFrom(entity)
        self._write(request, timeout=PATIENCE_S)

    def read(self, entity: Any) -> list[Any]:
        """Return the entities that a request's entity selects."""
        responses = self._read(bfruntime.ReadRequest(entities=[entity]), timeout=PATIENCE_S)
        return [found for response in responses for found in response.entities]

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


class Table:
    """A table of a switch."""

    def __init__(self, client: Client, described: Mapping[str, Any]) -> None:
        self._client = client
        self.id: int = described["id"]
        self._key = {field["name"]: Field.of(field) for field in described["key"]}
        self._data = {field["singleton"]["name"]: Field.of(field["singleton"]) for field in described["data"]}
        self.actions = {
            action["name"]: (action["id"], {field["name"]: Field.of(field) for field in action["data"]})
            for action in described.get("action_specs", ())
        }

    def add(self, key: Mapping[str, Match], data: Mapping[str, Value], action: str = "") -> None:
        """Insert an entry."""
        self.update(bfruntime.INSERT, key, data, action)

    def modify(self, key: Mapping[str, Match], data: Mapping[str, Value], action: str = "") -> None:
        """Modify an entry; fields that are not given stay."""
        self.update(bfruntime.MODIFY, key, data, action)

    def delete(self, key: Mapping[str, Match] | None = None) -> None:
        """Delete an entry, or all."""
        self.update(bfruntime.DELETE, key, {}, "")

    def set_default(self, data: Mapping[str, Value], action: str) -> None:
        """Set the default entry."""
        entry = self.entry(None, data, action)
        entry.is_default_entry = True
        self._client.write((bfruntime.MODIFY, bfruntime.Entity(table_entry=entry)))

    def update(
        self,
        kind: int,
        key: Mapping[str, Match] | None,
        data: Mapping[str, Value],
        action: str,
        **flags: bool,
    ) -> None:
        """Send one update of an entry, with these flags."""
        entry = self.entry(key, data, action)
        for name, value in flags.items():
            setattr(entry.table_flags, name, value)
        self._client.write((kind, bfruntime.Entity(table_entry=entry)))

    def operate(self, name: str) -> None:
        """Execute an operation of the table."""
        entity = bfruntime.Entity()
        entity.table_operation.table_id, entity.table_operation.table_operations_type = self.id, name
        self._client.write((bfruntime.INSERT, entity))

    def usage(self) -> int:
        """Return the number of entries."""
        entity = bfruntime.Entity()
        entity.table_usage.table_id = self.id
        (found,) = self._client.read(entity)
        return int(found.table_usage.usage)

    def entries(
        self, key: Mapping[str, Match] | None = None, *, default: bool = False
    ) -> list[tuple[dict[str, Match], dict[str, Value], str]]:
        """Return the entry of a key, all entries, or the default one: keys, data and names of actions."""
        entry = self.entry(key, {}, "")
        entry.is_default_entry = default
        found = self._client.read(bfruntime.Entity(table_entry=entry))
        return [self._decoded(each.table_entry) for each in found]

    def entry(self, key: Mapping[str, Match] | None, data: Mapping[str, Value], action: str) -> Any:
        """Return the message of an entry."""
        entry = bfruntime.TableEntry(table_id=self.id)
        if key is not None:
            entry.key.SetInParent()
        for name, match in (key or {}).items():
            _set_match(entry.key.fields.add(field_id=self._key[name].id), self._key[name], match)
        fields = dict(self._data)
        if action:
            entry.data.action_id, own = self.actions[action]
            fields |= own
        for name, value in data.items():
            _set_value(entry.data.fields.add(field_id=fields[name].id), fields[name], value)
        return entry

    def _decoded(self, entry: Any) -> tuple[dict[str, Match], dict[str, Value], str]:
        keys = {field.id: name for name, field in self._key.items()}
        key = {keys[f.field_id]: _match_of(f) for f in entry.key.fields}
        names = {id_: (name, fields) for name, (id_, fields) in self.actions.items()}
        action, own = names.get(entry.data.action_id, ("", {}))
        fields = {f.id: name for name, f in (*self._data.items(), *own.items())}
        return key, {fields[f.field_id]: _value_of(f) for f in entry.data.fields}, action


def _set_match(to: Any, field: Field, match: Match) -> None:
    if match is None:
        match = {"Ternary": (0, 0), "LPM": (0, 0), "Range": (0, (1 << field.bits) - 1)}[field.match]
    if field.match == "Ternary" and isinstance(match, int):
        match = (match, (1 << field.bits) - 1)
    if isinstance(match, tuple):
        first, second = match
        if field.match == "Ternary":
            to.ternary.value, to.ternary.mask = field.raw(first), field.raw(second)
        elif field.match == "LPM":
            to.lpm.value, to.lpm.prefix_len = field.raw(first), second
        else:
            to.range.low, to.range.high = field.raw(first), field.raw(second)
        return
    assert isinstance(match, int)
    to.exact.value = field.raw(match)


def _match_of(found: Any) -> Match:
    match found.WhichOneof("match_type"):
        case "ternary":
            return _number(found.ternary.value), _number(found.ternary.mask)
        case "lpm":
            return _number(found.lpm.value), found.lpm.prefix_len
        case "range":
            return _number(found.range.low), _number(found.range.high)
    return _number(found.exact.value)


def _set_value(to: Any, field: Field, value: Value) -> None:
    if field.repeated:
        kind = to.bool_arr_val if field.type == "bool" else to.int_arr_val
        kind.SetInParent()
        kind.val.extend(value)
    elif isinstance(value, bool):
        to.bool_val = value
    elif isinstance(value, str):
        to.str_val = value
    else:
        assert isinstance(value, int)
        to.stream = field.raw(value)


def _value_of(found: Any) -> Value:
    match found.WhichOneof("value"):
        case "stream":
            return _number(found.stream)
        case "int_arr_val" | "bool_arr_val" as kind:
            return list(getattr(found, kind).val)
        case kind:
            value: Value = getattr(found, kind)
            return value


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def all_of(tables: Mapping[str, Table], *suffixes: str) -> Iterator[Table]:
    """Yield the tables whose names end so."""
    for suffix in suffixes:
        (name,) = (name for name in tables if name.endswith(suffix))
        yield tables[name]
