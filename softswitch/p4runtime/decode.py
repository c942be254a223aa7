"""From P4Runtime messages to the entries that pipelines take; everything malformed is refused here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from softswitch.compiler import ir
from softswitch.p4runtime import bytestrings
from softswitch.p4runtime.errors import InvalidArgument, PermissionDenied
from softswitch.p4runtime.schema import Action, Field, Param, Schema, Table, listing

ANY = ir.Pattern("any")


def table(schema: Schema, table_id: int) -> Table:
    """Look up the table of a request."""
    if table_id not in schema.tables:
        raise InvalidArgument(schema.describe_unknown("table", table_id))
    return schema.tables[table_id]


def match_key(table: Table, matches: Sequence[Any]) -> tuple[ir.Pattern, ...]:
    """Decode a match key into one pattern per component of the table's key.

    Omitted components are "don't care"; an exact one cannot be omitted.
    """
    sent = matches[:]  # a list: repeated fields are slow to iterate over
    if [m.field_id for m in sent] == table.field_ids:  # the usual case: all of them, in order
        return tuple([_pattern(table, f, m) for f, m in zip(table.fields, sent, strict=True)])
    given: dict[int, Any] = {}
    by_id = {f.id: f for f in table.fields}
    for m in sent:
        if m.field_id not in by_id:
            raise InvalidArgument(
                f"table '{table.name}' has no match field {m.field_id}; {listing('field', table.fields)}"
            )
        if m.field_id in given:
            raise InvalidArgument(f"match field '{by_id[m.field_id].name}' is given twice")
        given[m.field_id] = m
    return tuple(
        _pattern(table, f, given[f.id]) if f.id in given else _omitted(table, f) for f in table.fields
    )


def priority(table: Table, value: int) -> int:
    """Check an entry's priority: positive where entries may overlap, zero where they cannot."""
    if table.takes_priority and value <= 0:
        raise InvalidArgument(
            f"priority is {value}; entries of '{table.name}' can overlap and need one above zero"
        )
    if not table.takes_priority and value != 0:
        raise InvalidArgument(
            f"priority is {value}; entries of '{table.name}' cannot overlap by priority, it must be 0"
        )
    return value


def invocation(schema: Schema, table: Table, action: Any, *, default: bool) -> ir.Invocation:
    """Decode a ``TableAction`` for an entry of `table`, or for its default entry."""
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
        raise InvalidArgument(f"'{table.name}' has not {what}; {choices}")
    found, scope = schema.actions[action_id], table.actions[action_id]
    if default and scope == "table_only":
        raise PermissionDenied(f"'{found.name}' is for entries of '{table.name}' only, not for its default")
    if not default and scope == "default_only":
        raise PermissionDenied(f"'{found.name}' is for the default of '{table.name}' only, not for entries")
    return ir.Invocation(found.name, _arguments(found, message.params))


def _arguments(action: Action, params: Sequence[Any]) -> tuple[int, ...]:
    sent = params[:]
    if [given.param_id for given in sent] == action.param_ids:
        return tuple([_value(action, p, given) for p, given in zip(action.params, sent, strict=True)])
    by_id = {p.id: p for p in action.params}
    values: dict[int, int] = {}
    for given in sent:
        if given.param_id not in by_id:
            raise InvalidArgument(
                f"action '{action.name}' has no parameter {given.param_id};"
                f" {listing('parameter', action.params)}"
            )
        param = by_id[given.param_id]
        if param.id in values:
            raise InvalidArgument(f"parameter '{param.name}' of '{action.name}' is given twice")
        values[param.id] = _value(action, param, given)
    missing = [p.name for p in action.params if p.id not in values]
    if missing:
        raise InvalidArgument(f"action '{action.name}' lacks a value for {_quoted(missing)}")
    return tuple(values[p.id] for p in action.params)


def _value(action: Action, param: Param, given: Any) -> int:
    return bytestrings.decode(given.value, param.width, f"parameter '{param.name}' of '{action.name}'")


def _omitted(table: Table, f: Field) -> ir.Pattern:
    if f.match == "exact":
        raise InvalidArgument(f"the match lacks '{f.name}': exact fields of '{table.name}' cannot be omitted")
    return ANY


def _pattern(table: Table, f: Field, message: Any) -> ir.Pattern:
    kind = message.WhichOneof("field_match_type")
    if kind != f.match:
        raise InvalidArgument(
            f"match field '{f.name}' of '{table.name}' is {f.match}; the request gives {kind or 'nothing'}"
        )
    what = f"match field '{f.name}'"
    match kind:
        case "exact" | "optional":
            return ir.Pattern("exact", bytestrings.decode(getattr(message, kind).value, f.width, what))
        case "lpm":
            return _lpm(f, message.lpm, what)
        case "ternary":
            value = bytestrings.decode(message.ternary.value, f.width, what)
            mask = bytestrings.decode(message.ternary.mask, f.width, f"the mask of {what}")
            if mask == 0:
                raise InvalidArgument(f"{what} has mask 0; leave a don't-care field out of the match")
            if value & ~mask:
                raise InvalidArgument(
                    f"{what} is 0x{value:x} under mask 0x{mask:x}: bits outside it must be 0"
                )
            return ir.Pattern("mask", value, mask)
        case _:
            low = bytestrings.decode(message.range.low, f.width, f"the low end of {what}")
            high = bytestrings.decode(message.range.high, f.width, f"the high end of {what}")
            if low > high:
                raise InvalidArgument(
                    f"{what} ranges from 0x{low:x} down to 0x{high:x}; low must not exceed high"
                )
            if low == 0 and high == (1 << f.width) - 1:
                raise InvalidArgument(
                    f"{what} ranges over all values; leave a don't-care field out of the match"
                )
            return ir.Pattern("range", low, high)


def _lpm(f: Field, message: Any, what: str) -> ir.Pattern:
    value = bytestrings.decode(message.value, f.width, what)
    length = message.prefix_len
    if length == 0:
        raise InvalidArgument(f"{what} has prefix length 0; leave a don't-care field out of the match")
    if not 0 < length <= f.width:
        raise InvalidArgument(f"{what} has prefix length {length}; it must be 1 to {f.width}")
    mask = ((1 << length) - 1) << (f.width - length)
    if value & ~mask:
        raise InvalidArgument(f"{what} is 0x{value:x}/{length}: bits beyond the prefix must be 0")
    return ir.Pattern("mask", value, mask)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{n}'" for n in names)
