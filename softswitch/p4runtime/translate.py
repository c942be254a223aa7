"""Check P4Runtime messages and convert them to the entries and frames of pipelines, and back.

A program that exchanges packets with the controller declares headers ``@controller_header("packet_in")`` and
``("packet_out")``. On the CPU port, these headers precede the frame. In P4Runtime, their fields are metadata
of the packet. A program without such a header exchanges frames without metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.p4runtime.errors import InvalidArgument, PermissionDenied
from softswitch.p4runtime.schema import ActionInfo, FieldInfo, ParamInfo, Schema, TableSchema, listing


def encode(value: int) -> bytes:
    """Encode `value` canonically, as the shortest byte string; zero is one zero byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, width: int, what: str) -> int:
    """Decode a value of `width` bits, which errors call `what`; leading zero bytes are allowed.

    Raises InvalidArgument if the string is empty or its value does not fit.
    """
    if not data:
        raise InvalidArgument(f"{what} is empty; a bit<{width}> takes at least one byte (zero is 00)")
    value = int.from_bytes(data, "big")
    if value.bit_length() > width:
        raise InvalidArgument(
            f"{what} is 0x{data.hex()}, {value.bit_length()} bits; it must fit in bit<{width}>,"
            f" at most 0x{(1 << width) - 1:x}"
        )
    return value


def table_entry(schema: Schema, table: TableSchema, entry: ir.ConstEntry, chosen: Any = None) -> Any:
    """Encode one entry: match, action and, if the table has priorities, priority.

    Args:
        schema: The program's names and ids.
        table: The table.
        entry: The entry.
        chosen: The ``TableAction`` as written, if it names a member or group of an action profile.
    """
    message = p4.TableEntry(table_id=table.id, is_const=table.const_entries)
    for field, pattern in zip(table.fields, entry.patterns, strict=True):
        match_field(message.match, field, pattern)
    if table.takes_priority:
        message.priority = entry.priority
    message.action.CopyFrom(table_action(schema, entry.invocation) if chosen is None else chosen)
    return message


def default_entry(schema: Schema, table: TableSchema, invocation: ir.Invocation) -> Any:
    """Encode the default entry of `table`."""
    return p4.TableEntry(
        table_id=table.id,
        is_default_action=True,
        is_const=table.const_default,
        action=table_action(schema, invocation),
    )


def table_action(schema: Schema, invocation: ir.Invocation) -> Any:
    """Encode an action with its arguments."""
    action = schema.action_named(ir.plain_name(invocation.action))
    message = p4.TableAction()
    message.action.action_id = action.id
    for param, value in zip(action.params, invocation.args, strict=True):
        message.action.params.add(param_id=param.id, value=encode(value))
    return message


def match_field(matches: Any, field: FieldInfo, pattern: ir.Pattern) -> None:
    """Add one component of a match, unless it is "don't care"."""
    if pattern.kind == "any":
        return
    message = matches.add(field_id=field.id)
    match field.match:
        case "exact":
            message.exact.value = encode(pattern.value)
        case "optional":
            message.optional.value = encode(pattern.value)
        case "lpm":
            message.lpm.value = encode(pattern.value)
            message.lpm.prefix_len = (pattern.mask | field.beyond).bit_count()
        case "ternary":
            message.ternary.value = encode(pattern.value)
            message.ternary.mask = encode(pattern.mask | field.beyond)
        case _:
            message.range.low = encode(pattern.value)
            message.range.high = encode(pattern.mask)


ANY = ir.Pattern("any")

_KEPT, _KEPT_BYTES = 4096, 256
"""Limits of a table's cache of decoded actions: `_KEPT` actions, each of up to `_KEPT_BYTES` bytes."""


def table(schema: Schema, table_id: int) -> TableSchema:
    """Return the table with this id. Raises InvalidArgument if there is none."""
    if table_id not in schema.tables:
        raise InvalidArgument(schema.describe_unknown("table", table_id))
    return schema.tables[table_id]


def match_key(table: TableSchema, matches: Sequence[Any]) -> tuple[ir.Pattern, ...]:
    """Decode a match key into one pattern per component of the table's key.

    Omitted components are "don't care"; an exact one cannot be omitted.
    """
    fields = table.fields
    if len(matches) != len(fields):
        return _match_by_id(table, matches)
    patterns = []
    for number, f in enumerate(fields):  # the usual case: all are given, in order
        m = matches[number]
        if m.field_id != f.id:
            return _match_by_id(table, matches)
        patterns.append(_pattern(table, f, m))
    return tuple(patterns)


def _match_by_id(table: TableSchema, matches: Sequence[Any]) -> tuple[ir.Pattern, ...]:
    given = _by_id(matches, "field_id", f"table '{table.name}'", "match field", table.fields)
    return tuple(
        _pattern(table, f, given[f.id]) if f.id in given else _omitted(table, f) for f in table.fields
    )


def _by_id(
    messages: Sequence[Any], field: str, owner: str, kind: str, known: Sequence[FieldInfo | ParamInfo]
) -> dict[int, Any]:
    """Return the parts of a message by their ids.

    Args:
        messages: The parts.
        field: Name of the parts' field with the id.
        owner: The object that the message is for, in errors.
        kind: What the parts are, in errors.
        known: All parts that the object has.

    Raises InvalidArgument if the object does not have a part, or a part is given twice.
    """
    names = {each.id: each.name for each in known}
    found: dict[int, Any] = {}
    for message in messages:
        id_ = getattr(message, field)
        if id_ not in names:
            raise InvalidArgument(f"{owner} has no {kind} {id_}; {listing(kind, known)}")
        if id_ in found:
            raise InvalidArgument(f"{kind} '{names[id_]}' of {owner} is given twice")
        found[id_] = message
    return found


def priority(table: TableSchema, value: int) -> int:
    """Check an entry's priority: positive where entries may overlap, zero where they cannot."""
    if table.takes_priority and value <= 0:
        raise InvalidArgument(
            f"priority is {value}; entries of '{table.name}' can overlap and need a priority above 0"
        )
    if not table.takes_priority and value != 0:
        raise InvalidArgument(
            f"priority is {value}; entries of '{table.name}' have no priorities, so it must be 0"
        )
    return value


def called(schema: Schema, table: TableSchema, action: Any) -> ir.Invocation:
    """Decode the ``TableAction`` of an entry of `table`; results are cached by the action's bytes."""
    data = action.SerializeToString()
    found = table.decoded.get(data)
    if found is None:
        found = invocation(schema, table, action, default=False)
        if len(table.decoded) == _KEPT:
            table.decoded.clear()
        if len(data) <= _KEPT_BYTES:
            table.decoded[data] = found
    return found


def invocation(schema: Schema, table: TableSchema, action: Any, *, default: bool) -> ir.Invocation:
    """Decode a ``TableAction``.

    Args:
        schema: The program's names and ids.
        table: The table.
        action: The message.
        default: True if the action is for the table's default entry.
    """
    kind = action.WhichOneof("type")
    if kind != "action":
        raise InvalidArgument(
            f"'{table.name}' takes an action, not {kind or 'an empty one'}: it has no action profile"
        )
    message = action.action
    action_id = message.action_id
    if action_id not in table.actions:
        choices = listing("action", (schema.actions[a] for a in table.actions if a in schema.actions))
        known = schema.actions.get(action_id)
        what = f"action '{known.name}'" if known else f"an action with id 0x{action_id:08x}"
        raise InvalidArgument(f"'{table.name}' does not have {what}; {choices}")
    found, scope = schema.actions[action_id], table.actions[action_id]
    if default and scope == "table_only":
        raise PermissionDenied(f"'{found.name}' is for entries of '{table.name}' only, not for its default")
    if not default and scope == "default_only":
        raise PermissionDenied(f"'{found.name}' is for the default of '{table.name}' only, not for entries")
    return ir.Invocation(found.name, _arguments(found, message.params))


def _arguments(action: ActionInfo, given: Sequence[Any]) -> tuple[int, ...]:
    params, labels = action.params, action.labels
    if len(given) != len(params):
        return _arguments_by_id(action, given)
    values = []
    for number, param in enumerate(params):  # the usual case: all are given, in order
        argument = given[number]
        if argument.param_id != param.id:
            return _arguments_by_id(action, given)
        values.append(decode(argument.value, param.width, labels[number]))
    return tuple(values)


def _arguments_by_id(action: ActionInfo, sent: Sequence[Any]) -> tuple[int, ...]:
    given = _by_id(sent, "param_id", f"action '{action.name}'", "parameter", action.params)
    missing = ", ".join(f"'{p.name}'" for p in action.params if p.id not in given)
    if missing:
        raise InvalidArgument(f"action '{action.name}' lacks a value for {missing}")
    pairs = zip(action.params, action.labels, strict=True)
    return tuple(decode(given[p.id].value, p.width, label) for p, label in pairs)


def _omitted(table: TableSchema, f: FieldInfo) -> ir.Pattern:
    if f.match == "exact":
        raise InvalidArgument(f"the match lacks '{f.name}': exact fields of '{table.name}' cannot be omitted")
    return ANY


def _pattern(table: TableSchema, f: FieldInfo, message: Any) -> ir.Pattern:
    kind = message.WhichOneof("field_match_type")
    if kind != f.match:
        raise InvalidArgument(
            f"{f.label} of '{table.name}' is {f.match}; the request gives {kind or 'nothing'}"
        )
    what = f.label
    match kind:
        case "exact":
            return ir.Pattern("exact", decode(message.exact.value, f.width, what))
        case "optional":
            return ir.Pattern("exact", decode(message.optional.value, f.width, what))
        case "lpm":
            return _lpm(f, message.lpm, what)
        case "ternary":
            value = decode(message.ternary.value, f.width, what)
            mask = decode(message.ternary.mask, f.width, f"the mask of {what}")
            if mask == 0:
                raise InvalidArgument(f"{what} has mask 0; leave a don't-care field out of the match")
            if value & ~mask:
                raise InvalidArgument(
                    f"{what} is 0x{value:x} under mask 0x{mask:x}: bits outside the mask must be 0"
                )
            return ir.Pattern("mask", value, mask & ~f.beyond)
        case _:
            low = decode(message.range.low, f.width, f"the low end of {what}")
            high = decode(message.range.high, f.width, f"the high end of {what}")
            if low > high:
                raise InvalidArgument(
                    f"{what} ranges from 0x{low:x} down to 0x{high:x}; low must not exceed high"
                )
            if low == 0 and high == (1 << f.width) - 1:
                raise InvalidArgument(
                    f"{what} ranges over all values; leave a don't-care field out of the match"
                )
            return ir.Pattern("range", low, high)


def _lpm(f: FieldInfo, message: Any, what: str) -> ir.Pattern:
    value = decode(message.value, f.width, what)
    length = message.prefix_len
    if length == 0:
        raise InvalidArgument(f"{what} has prefix length 0; leave a don't-care field out of the match")
    if not 0 < length <= f.width:
        raise InvalidArgument(f"{what} has prefix length {length}; it must be 1 to {f.width}")
    mask = ((1 << length) - 1) << (f.width - length)
    if value & ~mask:
        raise InvalidArgument(f"{what} is 0x{value:x}/{length}: bits beyond the prefix must be 0")
    return ir.Pattern("mask", value, mask & ~f.beyond)


def from_packet_out(fields: Sequence[ParamInfo], message: Any) -> bytes:
    """Build the frame of a PacketOut, for the CPU port. Raises InvalidArgument if the metadata do not fit."""
    given = _by_id(message.metadata, "metadata_id", "packet_out", "metadata field", fields)
    missing = [f.name for f in fields if f.id not in given]
    if missing:
        raise InvalidArgument(f"packet_out lacks metadata {', '.join(missing)}")
    header = 0
    for f in fields:
        header = header << f.width | decode(given[f.id].value, f.width, f"metadata '{f.name}'")
    return header.to_bytes(_header_bytes(fields), "big") + bytes(message.payload)


def to_packet_in(fields: Sequence[ParamInfo], frame: bytes) -> Any:
    """Build the PacketIn of a frame that left by the CPU port.

    A frame shorter than the packet_in header is passed on whole, without metadata.
    """
    length = _header_bytes(fields)
    if len(frame) < length:
        return p4.PacketIn(payload=frame)
    header = int.from_bytes(frame[:length], "big")
    message = p4.PacketIn(payload=frame[length:])
    shift = 8 * length
    for f in fields:
        shift -= f.width
        value = header >> shift & ((1 << f.width) - 1)
        message.metadata.add(metadata_id=f.id, value=encode(value))
    return message


def _header_bytes(fields: Sequence[ParamInfo]) -> int:
    """Return a header's size in bytes; the compiler ensures whole bytes."""
    return sum(f.width for f in fields) // 8
