"""A client of BF Runtime for the session's entries and the tests: tables by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import grpc

from p4src.messages import bfruntime
from softswitch.bfrt.values import Column, TableSpec, Value, bytes_of, column_of, read_data, write_data

PATIENCE_S = 300.0
Match = Value | tuple[int, int] | None
"""A field of a key: a value, a value and mask (ternary), a value and length (LPM) or bounds; None: any."""


def columns_of(described: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return the fields that a part of the JSON describes."""
    return tuple(
        Column(
            each["id"],
            each["name"],
            each["type"]["type"],
            each["type"].get("width", 0),
            each.get("match_type", ""),
            each["repeated"],
        )
        for each in described
    )


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
        self._spec = TableSpec(
            described["id"],
            described["name"],
            described["table_type"],
            described["size"],
            columns_of(described["key"]),
            columns_of(each["singleton"] for each in described["data"]),
        )
        self.id = self._spec.id
        self._key = {column.name: column for column in self._spec.key}
        self.actions = {
            action["name"]: (action["id"], columns_of(action["data"]))
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
        own: tuple[Column, ...] = ()
        if action:
            entry.data.action_id, own = self.actions[action]
        columns = {column.name: column for column in (*self._spec.data, *own)}
        write_data(entry.data, data, [columns[name] for name in data])
        return entry

    def _decoded(self, entry: Any) -> tuple[dict[str, Match], dict[str, Value], str]:
        spec = self._spec
        key = {column_of(spec.key, f.field_id, spec).name: _match_of(f) for f in entry.key.fields}
        names = {id_: (name, columns) for name, (id_, columns) in self.actions.items()}
        action, own = names.get(entry.data.action_id, ("", ()))
        return key, read_data(entry.data.fields, (*spec.data, *own), spec), action


def _set_match(to: Any, column: Column, match: Match) -> None:
    if match is None:
        match = {"Ternary": (0, 0), "LPM": (0, 0), "Range": (0, (1 << column.bits) - 1)}[column.match]
    if column.match == "Ternary" and isinstance(match, int):
        match = (match, (1 << column.bits) - 1)
    if isinstance(match, tuple):
        first, second = match
        if column.match == "Ternary":
            to.ternary.value, to.ternary.mask = bytes_of(first, column), bytes_of(second, column)
        elif column.match == "LPM":
            to.lpm.value, to.lpm.prefix_len = bytes_of(first, column), second
        else:
            to.range.low, to.range.high = bytes_of(first, column), bytes_of(second, column)
        return
    assert isinstance(match, int)
    to.exact.value = bytes_of(match, column)


def _match_of(found: Any) -> Match:
    match found.WhichOneof("match_type"):
        case "ternary":
            return _number(found.ternary.value), _number(found.ternary.mask)
        case "lpm":
            return _number(found.lpm.value), found.lpm.prefix_len
        case "range":
            return _number(found.range.low), _number(found.range.high)
    return _number(found.exact.value)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def all_of(tables: Mapping[str, Table], *suffixes: str) -> Iterator[Table]:
    """Yield the tables whose names end so."""
    for suffix in suffixes:
        (name,) = (name for name in tables if name.endswith(suffix))
        yield tables[name]
