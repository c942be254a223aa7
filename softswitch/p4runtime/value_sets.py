"""Writing and reading ValueSetEntry: all members of a parser's value set at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.p4runtime import decode, encode
from softswitch.p4runtime.errors import InvalidArgument, NotFound, ResourceExhausted
from softswitch.p4runtime.schema import Table
from softswitch.p4runtime.state import Bundle


def write(bundle: Bundle, kind: int, message: Any) -> None:
    """Replace the members of a value set."""
    values = _value_set(bundle, message.value_set_id)
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"value set '{values.name}' always exists: it can only be modified")
    if len(message.members) > values.size:
        raise ResourceExhausted(f"{len(message.members)} members for '{values.name}' of size {values.size}")
    member = ir.Invocation(f"{values.name}#member", ())
    patterns = [decode.match_key(values, given.match) for given in message.members]
    if len(set(patterns)) < len(patterns):
        raise InvalidArgument(f"a member of '{values.name}' appears twice")
    for entry in bundle.pipeline.entries(values.name):
        bundle.pipeline.delete(values.name, entry)
    for key in patterns:
        bundle.pipeline.insert(values.name, ir.ConstEntry(key, member, 1))


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield the members of one value set or, with id 0, of all."""
    if request.value_set_id == 0:
        found = list(bundle.schema.value_sets.values())
    else:
        found = [_value_set(bundle, request.value_set_id)]
    for values in found:
        entry = p4.ValueSetEntry(value_set_id=values.id)
        for member in bundle.pipeline.entries(values.name):
            matches = entry.members.add().match
            for field, pattern in zip(values.fields, member.patterns, strict=True):
                encode.match_field(matches, field, pattern)
        yield entry


def _value_set(bundle: Bundle, id_: int) -> Table:
    if id_ not in bundle.schema.value_sets:
        raise NotFound(bundle.schema.describe_unknown("value set", id_))
    return bundle.schema.value_sets[id_]
