"""Report controllers' writes to listeners, and carry written entries and cells over to a new program.

The pipeline config action RECONCILE_AND_COMMIT carries them over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.p4runtime import action_profiles, tables
from softswitch.p4runtime.errors import FailedPrecondition, RequestError
from softswitch.p4runtime.state import Bundle

_KINDS: Mapping[int, Literal["INSERT", "MODIFY", "DELETE"]] = {
    p4.Update.INSERT: "INSERT",
    p4.Update.MODIFY: "MODIFY",
    p4.Update.DELETE: "DELETE",
}


@dataclass(frozen=True, slots=True)
class Written:
    """A record of a written table entry or, with `kind` LOAD, of a program, which starts without entries.

    `match` has the values of the key's exact fields by name, and `params` the values of the action's
    parameters by name. For a deletion, these are the deleted entry's values. `client` is gRPC's name of the
    peer and, with TLS, the name in the peer's certificate.
    """

    kind: Literal["INSERT", "MODIFY", "DELETE", "LOAD"]
    client: str
    table: str = ""
    match: Mapping[str, int] | None = None
    params: Mapping[str, int] | None = None
    metadata: bytes = b""


Journal = Callable[[Written], None]
"""A function that is called with the record of each write, after the write is applied."""


def prepare(bundle: Bundle, updates: Sequence[Any], client: str) -> list[Written | None]:
    """Return a record of each update; None for an update that writes no table entry.

    Call this before the updates are applied: a deletion's record has the values of the deleted entry.
    """
    return [_written(bundle, update, client) for update in updates]


def client_of(context: Any) -> str:
    """Return the name of a request's client, as `Written.client` holds it."""
    name = b", ".join(context.auth_context().get("x509_common_name", ())).decode(errors="replace")
    return f"{context.peer()} ({name})" if name else str(context.peer())


def _written(bundle: Bundle, update: Any, client: str) -> Written | None:
    message = update.entity.table_entry
    if not update.entity.HasField("table_entry") or message.is_default_action or update.type not in _KINDS:
        return None
    table = bundle.schema.tables.get(message.table_id)
    if table is None:
        return None
    if update.type == p4.Update.DELETE:
        try:
            found = tables.before(bundle, message)
        except RequestError:  # the write reports this error
            return None
        if not found:
            return None
        message = found[0]
    fields = {field.id: field.name for field in table.fields}
    action = bundle.schema.actions.get(message.action.action.action_id)
    params = {param.id: param.name for param in action.params} if action else {}
    return Written(
        _KINDS[update.type],
        client,
        table.name,
        {
            fields[m.field_id]: int.from_bytes(m.exact.value, "big")
            for m in message.match
            if m.field_id in fields and m.HasField("exact")
        },
        {
            params[p.param_id]: int.from_bytes(p.value, "big")
            for p in message.action.action.params
            if p.param_id in params
        },
        bytes(message.metadata),
    )


def carry_over(old: Bundle, new: Bundle) -> None:
    """Copy the state of objects that both programs have from `old` to `new`; lock the switch first.

    Raises FailedPrecondition if `new` cannot take an entry, for example of a table whose key has
    changed, or gives an object's id to another object; `new` is then unusable.
    """
    _check_ids(old, new)
    new.groups.update(old.groups)
    new.sessions.update(old.sessions)
    new.digests.update({id_: kept for id_, kept in old.digests.items() if id_ in new.schema.digests})
    for name, write, messages in _all_written(old, new):
        for kind, message in messages:
            try:
                write(new, kind, message)
            except RequestError as error:
                raise FailedPrecondition(f"{name} cannot be kept: {error}") from error
    _copy_cells(old, new)


def _check_ids(old: Bundle, new: Bundle) -> None:
    """Raise FailedPrecondition if an id names different objects in the two programs: messages use ids."""
    kinds = new.schema.by_kind()
    for kind, objects in old.schema.by_kind().items():
        for id_, item in objects.items():
            other = kinds[kind].get(id_)
            if other is not None and other.name != item.name:
                raise FailedPrecondition(
                    f"{kind} 0x{id_:08x} is '{item.name}' in the old program, '{other.name}' in the new one"
                )


def _all_written(old: Bundle, new: Bundle) -> list[tuple[str, Any, list[tuple[int, Any]]]]:
    insert, modify = p4.Update.INSERT, p4.Update.MODIFY
    profiles = [id_ for id_ in old.profiles if id_ in new.schema.profiles]
    members = [(insert, m) for id_ in profiles for m in old.profiles[id_].members.values()]
    groups = [(insert, g) for id_ in profiles for g in old.profiles[id_].groups.values()]
    sets = [
        p4.ValueSetEntry(value_set_id=id_) for id_ in old.schema.value_sets if id_ in new.schema.value_sets
    ]
    values = [(modify, found) for request in sets for found in tables.read_value_set(old, request)]
    everything = {"counter_data": p4.CounterData(), "meter_config": p4.MeterConfig()}
    kept = [table for id_, table in old.schema.tables.items() if id_ in new.schema.tables]
    entries = [
        (insert, found)
        for table in kept
        if not table.const_entries
        for found in tables.read(old, p4.TableEntry(table_id=table.id, **everything))
    ]
    defaults = [
        (modify, found)
        for table in kept
        if not table.const_default
        and old.pipeline.default(table.name) != old.program.tables[table.name].default
        for found in tables.before(old, p4.TableEntry(table_id=table.id, is_default_action=True))
    ]
    return [
        ("a value set", tables.write_value_set, values),
        ("a member", action_profiles.write_member, members),
        ("a group", action_profiles.write_group, groups),
        ("an entry", tables.write, entries),
        ("a default entry", tables.write, defaults),
    ]


def _copy_cells(old: Bundle, new: Bundle) -> None:
    """Copy counters, meters and registers that both programs have with the same size and type."""
    for name in _alike(old.program.counters, new.program.counters):
        for index, (packets, bytes_) in enumerate(old.pipeline.read_counters(name)):
            if packets or bytes_:
                new.pipeline.write_counter(name, index, packets, bytes_)
    for name in _alike(old.program.meters, new.program.meters):
        for index in range(old.program.meters[name].size):
            rates = old.pipeline.read_meter(name, index).rates
            if rates is not None:
                new.pipeline.configure_meter(name, index, rates)
    for name in _alike(old.program.registers, new.program.registers):
        for index in range(old.program.registers[name].size):
            value = old.pipeline.read_register(name, index)
            if value:
                new.pipeline.write_register(name, index, value)


def _alike(old: Any, new: Any) -> list[str]:
    """Return the names of arrays that both programs have, with the same number and kind of cells."""
    return [
        name
        for name, item in old.items()
        if name in new
        and getattr(item, "table", None) is None
        and (item.size, _shape(item)) == (new[name].size, _shape(new[name]))
    ]


def _shape(item: ir.Counter | ir.Meter | ir.Register) -> object:
    return item.type if isinstance(item, ir.Register) else item.unit
