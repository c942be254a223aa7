"""Convert table entries to P4Runtime messages and back, by the names in a P4Info. No I/O."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from controller.switches.programs import objects
from controller.switches.target import (
    CounterCell,
    Entry,
    Lpm,
    Match,
    MulticastGroup,
    Range,
    RegisterCell,
    TableEntry,
    Ternary,
    find,
)
from p4src.messages import p4runtime_pb2 as p4


class Codec:
    """Encodes and decodes entries of the program that `p4info` describes.

    All methods that take names may raise UnknownName.
    """

    def __init__(self, p4info: Any) -> None:
        self.program = objects(p4info)
        """The tables, actions, counters and registers of the program."""
        self._tables = {t.preamble.name: t for t in p4info.tables}
        self._actions = {a.preamble.name: a for a in p4info.actions}
        self._counters = {c.preamble.name: c for c in p4info.counters}
        self._registers = {r.preamble.name: r for r in p4info.registers}
        self._table_names = {t.preamble.id: t.preamble.name for t in p4info.tables}
        self._action_names = {a.preamble.id: a.preamble.name for a in p4info.actions}
        self._counter_names = {c.preamble.id: c.preamble.name for c in p4info.counters}

    # ------------------------------------------------------------------ encode

    def encode(self, entry: Entry) -> Any:
        """Encode an entry as a ``p4.v1.Entity``. Raises UnknownName; ValueError for a wrong value."""
        match entry:
            case TableEntry():
                return p4.Entity(table_entry=self._encode_row(entry))
            case MulticastGroup():
                group = p4.MulticastGroupEntry(multicast_group_id=entry.id)
                for port, instance in entry.replicas:
                    # Switches older than P4Runtime 1.4 know only this of the two ways to give a port.
                    group.replicas.add(egress_port=port, instance=instance)
                return _replication(group)
            case CounterCell():
                counter = find("counter", entry.counter, self._counters)
                return p4.Entity(
                    counter_entry=p4.CounterEntry(
                        counter_id=counter.preamble.id,
                        index=p4.Index(index=entry.index),
                        data=p4.CounterData(packet_count=entry.packets, byte_count=entry.bytes),
                    )
                )
            case RegisterCell():
                register = find("register", entry.register, self._registers)
                cell = p4.RegisterEntry(register_id=register.preamble.id, index=p4.Index(index=entry.index))
                cell.data.bitstring = _bytes(entry.value)
                return p4.Entity(register_entry=cell)
            case _:
                assert_never(entry)

    def all_rows(self, table: str) -> Any:
        """Return the entity with which to read all entries of a table except its default entry."""
        found = find("table", table, self._tables)
        return p4.Entity(table_entry=p4.TableEntry(table_id=found.preamble.id))

    def every_row(self) -> Any:
        """Return the entity with which to read all entries of all tables except the default entries."""
        return p4.Entity(table_entry=p4.TableEntry())

    def row(self, table: str, match: Mapping[str, Match]) -> Any:
        """Return the entity with which to read the entry of a table that has this match."""
        return p4.Entity(table_entry=self._encode_match(table, match))

    def all_groups(self) -> Any:
        """Return the entity with which to read all multicast groups."""
        return _replication(p4.MulticastGroupEntry())

    def cell(self, counter: str, index: int) -> Any:
        """Return the entity with which to read one cell of a counter."""
        return self.encode(CounterCell(counter, index))

    # ------------------------------------------------------------------ decode

    def decode(self, entity: Any) -> Entry | None:
        """Decode a table entry, a multicast group or a counter's cell; return None for other entities."""
        match entity.WhichOneof("entity"):
            case "table_entry":
                return self._decode_row(entity.table_entry)
            case "counter_entry":
                cell = entity.counter_entry
                return CounterCell(
                    self._counter_names[cell.counter_id],
                    cell.index.index,
                    cell.data.packet_count,
                    cell.data.byte_count,
                )
            case "packet_replication_engine_entry":
                entry = entity.packet_replication_engine_entry
                if entry.WhichOneof("type") != "multicast_group_entry":
                    return None
                group = entry.multicast_group_entry
                return MulticastGroup(
                    group.multicast_group_id, tuple((_port(r), r.instance) for r in group.replicas)
                )
            case _:
                return None

    # ------------------------------------------------------------------ rows

    def _encode_row(self, row: TableEntry) -> Any:
        message = self._encode_match(row.table, row.match)
        message.priority, message.is_default_action = row.priority, row.default
        message.metadata = row.metadata
        action = find("action", row.action, self._actions)
        message.action.action.action_id = action.preamble.id
        params = {p.name: p for p in action.params}
        for name, argument in row.params.items():
            param = find(f"parameter of {row.action}", name, params)
            with _naming(f"parameter '{name}' of {row.action}"):
                message.action.action.params.add(param_id=param.id, value=_bytes(argument))
        return message

    def _encode_match(self, name: str, match: Mapping[str, Match]) -> Any:
        table = find("table", name, self._tables)
        message = p4.TableEntry(table_id=table.preamble.id)
        fields = {f.name: f for f in table.match_fields}
        for key, value in match.items():
            field = find(f"match field of {name}", key, fields)
            with _naming(f"match field '{key}' of {name}"):
                _encode_match(message.match.add(field_id=field.id), field, value)
        return message

    def decode_key(self, message: Any) -> TableEntry:
        """Decode the key of a table entry; the result has no action."""
        name = self._table_names[message.table_id]
        fields = {f.id: f.name for f in self._tables[name].match_fields}
        match = {fields[m.field_id]: _decode_match(m) for m in message.match}
        return TableEntry(name, match, "", priority=message.priority)

    def _decode_row(self, message: Any) -> TableEntry:
        name = self._table_names[message.table_id]
        fields = {f.id: f.name for f in self._tables[name].match_fields}
        action_name = self._action_names[message.action.action.action_id]
        params = {p.id: p.name for p in self._actions[action_name].params}
        return TableEntry(
            table=name,
            match={fields[m.field_id]: _decode_match(m) for m in message.match},
            action=action_name,
            params={params[p.param_id]: int.from_bytes(p.value, "big") for p in message.action.action.params},
            priority=message.priority,
            default=message.is_default_action,
            metadata=message.metadata,
        )


def _encode_match(message: Any, field: Any, value: Match) -> None:
    match value:
        case int():
            kind = "optional" if field.match_type == field.OPTIONAL else "exact"
            getattr(message, kind).value = _bytes(value)
        case Lpm():
            message.lpm.value = _bytes(value.value)
            message.lpm.prefix_len = value.prefix_len
        case Ternary():
            message.ternary.value = _bytes(value.value)
            message.ternary.mask = _bytes(value.mask)
        case Range():
            message.range.low = _bytes(value.low)
            message.range.high = _bytes(value.high)
        case _:
            raise ValueError(f"{value!r}: want a number, Lpm, Ternary or Range")


def _decode_match(message: Any) -> Match:
    match message.WhichOneof("field_match_type"):
        case "lpm":
            return Lpm(int.from_bytes(message.lpm.value, "big"), message.lpm.prefix_len)
        case "ternary":
            return Ternary(
                int.from_bytes(message.ternary.value, "big"), int.from_bytes(message.ternary.mask, "big")
            )
        case "range":
            return Range(int.from_bytes(message.range.low, "big"), int.from_bytes(message.range.high, "big"))
        case "optional":
            return int.from_bytes(message.optional.value, "big")
        case _:
            return int.from_bytes(message.exact.value, "big")


def _replication(group: Any) -> Any:
    return p4.Entity(
        packet_replication_engine_entry=p4.PacketReplicationEngineEntry(multicast_group_entry=group)
    )


def _port(replica: Any) -> int:
    if replica.WhichOneof("port_kind") == "port":
        return int.from_bytes(replica.port, "big")
    return int(replica.egress_port)


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Prefix a ValueError raised in the block with the name of the wrong value."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _bytes(value: int) -> bytes:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r}: want a number, not less than 0")
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
