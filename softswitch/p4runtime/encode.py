"""From a pipeline's entries, which are canonical already, to P4Runtime messages."""

from __future__ import annotations

from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.p4runtime.bytestrings import encode
from softswitch.p4runtime.schema import Field, Schema, Table


def table_entry(schema: Schema, table: Table, entry: ir.ConstEntry, chosen: Any = None) -> Any:
    """Encode one entry: match, action and, where the table has them, priority.

    Args:
        schema: The program's names and ids.
        table: The table.
        entry: The entry.
        chosen: The action as it was written, if that names a member or group of an action profile.
    """
    message = p4.TableEntry(table_id=table.id, is_const=table.const_entries)
    for field, pattern in zip(table.fields, entry.patterns, strict=True):
        match_field(message.match, field, pattern)
    if table.takes_priority:
        message.priority = entry.priority
    message.action.CopyFrom(table_action(schema, entry.invocation) if chosen is None else chosen)
    return message


def default_entry(schema: Schema, table: Table, invocation: ir.Invocation) -> Any:
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


def match_field(matches: Any, field: Field, pattern: ir.Pattern) -> None:
    """Add one component of a match, unless it does not matter."""
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
            message.lpm.prefix_len = pattern.mask.bit_count()
        case "ternary":
            message.ternary.value = encode(pattern.value)
            message.ternary.mask = encode(pattern.mask)
        case _:
            message.range.low = encode(pattern.value)
            message.range.high = encode(pattern.mask)
