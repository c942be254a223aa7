"""Messages drawn at random: of any type, field by field, with numbers that the program knows."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from p4src.messages import p4info_pb2
from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import translate

DEEPEST = 6
"""Levels of messages in messages."""
KNOWN_PARTS = (
    *("tables", "actions", "action_profiles", "counters", "direct_counters", "meters", "direct_meters"),
    *("value_sets", "registers", "digests"),
)
EDGES = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
_LIMITS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_ENUM: (0, 9),
}


class Drawing:
    """Draws messages for one program."""

    def __init__(self, rng: random.Random, info: Any, source: str) -> None:
        self._rng = rng
        self._info = info
        self._source = source.encode()
        self._ids = [one.preamble.id for part in KNOWN_PARTS for one in getattr(info, part)]
        self._special: Mapping[str, Callable[[Any], None]] = {
            "p4.v1.TableEntry": self._table_entry,
            "p4.v1.ForwardingPipelineConfig": self._config,
        }

    def message(self, kind: Any) -> Any:
        """Return a message of this class, most often one that the primary controller may send."""
        message = kind()
        self._fill(message, 0)
        if self._rng.random() < 0.9:
            names = message.DESCRIPTOR.fields_by_name
            if "device_id" in names:
                message.device_id = 0
            if "election_id" in names:
                message.election_id.CopyFrom(p4.Uint128(low=1))
            for name in ("role", "role_id"):
                if name in names:
                    message.ClearField(name)
        return message

    def _fill(self, message: Any, depth: int) -> None:
        described: Descriptor = message.DESCRIPTOR
        special = self._special.get(described.full_name)
        if special is not None and self._rng.random() < 0.8:
            special(message)
            if self._rng.random() < 0.7:
                return
        chosen = {oneof.name: self._rng.choice(oneof.fields) for oneof in described.oneofs}
        for field in described.fields:
            wanted = self._rng.random() < (0.9 if depth < 2 else 0.4)
            if field.containing_oneof is not None:
                wanted = chosen[field.containing_oneof.name] is field
            if wanted and not _is_map(field):
                self._set(message, field, depth)

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        repeated = field.is_repeated
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            if repeated:
                getattr(message, field.name).append(self._scalar(field))
            else:
                setattr(message, field.name, self._scalar(field))
        elif depth < DEEPEST:
            many = self._rng.randint(0, 3) if repeated else 1
            for _ in range(many):
                inner = getattr(message, field.name).add() if repeated else getattr(message, field.name)
                inner.SetInParent()
                self._fill(inner, depth + 1)

    def _scalar(self, field: FieldDescriptor) -> Any:
        rng = self._rng
        match field.type:
            case FieldDescriptor.TYPE_BYTES:
                return rng.choice((b"", b"\0", b"\1", rng.randbytes(rng.randrange(1, 20))))
            case FieldDescriptor.TYPE_STRING:
                return rng.choice(("", "a role", "type.googleapis.com/p4.v1.Entity", "\0ü"))
            case FieldDescriptor.TYPE_BOOL:
                return rng.random() < 0.5
            case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
                return rng.choice((0.0, -1.0, float("nan"), float("inf")))
        low, high = _LIMITS[field.type]
        if field.name.endswith("_id") and self._ids and rng.random() < 0.7:
            return rng.choice(self._ids)
        return min(max(rng.choice((*range(8), *EDGES)), low), high)

    def _table_entry(self, entry: Any) -> None:
        """Fill in an entry as it should be."""
        if not self._info.tables:
            return
        table = self._rng.choice(self._info.tables)
        entry.table_id = table.preamble.id
        for field in table.match_fields:
            self._match(entry.match.add(field_id=field.id), field)
        entry.priority = self._rng.randint(0, 3)
        if table.implementation_id:
            entry.action.action_profile_member_id = self._rng.randrange(4)
        else:
            self._action(entry.action.action, self._rng.choice(table.action_refs).id)

    def _action(self, call: Any, number: int) -> None:
        call.action_id = number
        for action in self._info.actions:
            if action.preamble.id == number:
                for param in action.params:
                    call.params.add(param_id=param.id, value=self._value(param.bitwidth))

    def _match(self, match: Any, field: Any) -> None:
        value = self._value(field.bitwidth)
        match field.match_type:
            case p4info_pb2.MatchField.LPM:
                match.lpm.value, match.lpm.prefix_len = value, self._rng.randint(0, field.bitwidth)
            case p4info_pb2.MatchField.TERNARY:
                match.ternary.value, match.ternary.mask = value, self._value(field.bitwidth)
            case p4info_pb2.MatchField.RANGE:
                match.range.low, match.range.high = value, self._value(field.bitwidth)
            case p4info_pb2.MatchField.OPTIONAL:
                match.optional.value = value
            case _:
                match.exact.value = value

    def _value(self, width: int) -> bytes:
        """Return a number of up to that many bits in as few bytes as it needs."""
        number = self._rng.getrandbits(max(1, min(width, self._rng.choice((1, 2, width)))))
        return translate.encode(number)

    def _config(self, config: Any) -> None:
        """Fill in the program itself, most often with some bytes changed."""
        config.p4info.CopyFrom(self._info)
        source = bytearray(self._source)
        for _ in range(self._rng.choice((0, 1, 3))):
            source[self._rng.randrange(len(source))] = self._rng.choice(b" ;{}()x0\xff")
        config.p4_device_config = bytes(source)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
