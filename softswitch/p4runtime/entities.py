"""Apply and report updates of entities, read them, and carry them over to a new program.

`KINDS` maps each kind of entity to its functions.

This module also handles digests: their entries, and their lists (P4Runtime sections 9.6 and 16.3).

Controllers' writes are reported to listeners. The pipeline config action RECONCILE_AND_COMMIT carries written
entries and cells over.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.p4runtime import action_profiles, cells, replication, tables
from softswitch.p4runtime.cells import encode_data
from softswitch.p4runtime.errors import (
    Aborted,
    InvalidArgument,
    RequestError,
    Unimplemented,
    outcome,
)
from softswitch.p4runtime.state import Bundle, Device, Subscription, Timeout, check_kind


def write_digest(bundle: Bundle, kind: int, message: Any) -> None:
    """Subscribe to a digest, change the delivery of its lists, or unsubscribe."""
    digest = bundle.schema.find("digest", message.digest_id)
    config = message.config
    if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
        raise InvalidArgument(f"times and sizes of digest '{digest.name}' must be 0 or more")
    check_kind(
        kind,
        digest.id in bundle.digests,
        exists=f"digest '{digest.name}' is subscribed to already; modify it",
        missing=f"digest '{digest.name}' has no subscription; insert one first",
    )
    if kind == p4.Update.DELETE:
        del bundle.digests[digest.id]
    elif kind == p4.Update.MODIFY:
        bundle.digests[digest.id].entry = copy.deepcopy(message)
    else:
        bundle.digests[digest.id] = Subscription(copy.deepcopy(message))


def read_digest(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield the subscription to one digest or, for id 0, all subscriptions."""
    if request.digest_id != 0:
        bundle.schema.find("digest", request.digest_id)
    for id_, subscription in bundle.digests.items():
        if request.digest_id in (0, id_):
            yield copy.deepcopy(subscription.entry)


def acknowledge(bundle: Bundle, message: Any) -> None:
    """Discard a list that the controller has acknowledged; acknowledging it twice is no error."""
    subscription = bundle.digests.get(bundle.schema.find("digest", message.digest_id).id)
    if subscription is not None:
        subscription.forget(message.list_id)


def due(bundle: Bundle, now_ns: int) -> Iterator[Any]:
    """Queue the digests that the program sent, and yield the lists that are due. Lock the switch first."""
    ids = {digest.name: digest.id for digest in bundle.schema.digests.values()}
    for name, values in bundle.pipeline.take_digests():
        subscription = bundle.digests.get(ids[name])
        if subscription is not None:
            data = bundle.program.digests[name].data
            subscription.offer(encode_data(data, iter(values)), now_ns)
    for subscription in bundle.digests.values():
        yield from subscription.due(now_ns)


DIGEST_INTERVAL_S = 0.01
"""Seconds between polls of the program's digests."""

_SHORTEST_S, _LONGEST_S = 0.01, 1.0


def interval_s(bundle: Bundle | None) -> float | None:
    """Return the seconds until the next poll for digests and idle entries; None: no poll is needed."""
    if bundle is None or not (bundle.digests or bundle.timeouts):
        return None
    if bundle.digests:
        return DIGEST_INTERVAL_S
    shortest = min(timeout.timeout_ns for timeout in list(bundle.timeouts.values()))
    return min(max(shortest / 1e9 / 4, _SHORTEST_S), _LONGEST_S)


def look(bundle: Bundle) -> Iterator[Any]:
    """Yield a message for each list of digests and each table's idle entries; lock the switch first."""
    now_us, since_epoch_ns = bundle.now_us(), time.time_ns()
    if bundle.digests:
        for digest in due(bundle, 1000 * now_us):
            digest.timestamp = since_epoch_ns
            yield p4.StreamMessageResponse(digest=digest)
    idle: dict[str, Any] = {}
    for (table, _, _), timeout in bundle.timeouts.items():
        if _is_over(bundle, table, timeout, now_us):
            of_table = idle.setdefault(table, p4.IdleTimeoutNotification(timestamp=since_epoch_ns))
            of_table.table_entry.append(tables.encoded(bundle, table, timeout.entry))
    for notification in idle.values():
        yield p4.StreamMessageResponse(idle_timeout_notification=notification)


def _is_over(bundle: Bundle, table: str, timeout: Timeout, now_us: int) -> bool:
    """Return True, once per timeout, if the time since an entry's last hit or last report has reached it."""
    last_us = max(bundle.pipeline.read_last_hit(table, timeout.entry), timeout.told_us)
    if 1000 * (now_us - last_us) < timeout.timeout_ns:
        return False
    timeout.told_us = now_us
    return True


@dataclass(frozen=True, slots=True)
class EntityKind:
    """Functions to write and read entities of one kind.

    `before` returns the state of the entity before an update, so that the update can be reverted. By default,
    it is the result of `read`.
    """

    write: Callable[[Device, int, Any], None]
    read: Callable[[Bundle, Any], Iterable[Any]]
    before: Callable[[Bundle, Any], list[Any]] | None = None


def _in_bundle(write: Callable[[Bundle, int, Any], None]) -> Callable[[Device, int, Any], None]:
    return lambda device, kind, message: write(device.bundle, kind, message)


def _write_replication(device: Device, kind: int, message: Any) -> None:
    switch = device.switch if device.bundle is device.running else None
    replication.write(device.bundle, switch, kind, message)


def _refuse_extern(device: Device, kind: int, message: Any) -> None:
    raise Unimplemented("this switch does not offer externs other than v1model's")


def _no_externs(bundle: Bundle, request: Any) -> list[Any]:
    if request.extern_type_id:
        raise Unimplemented("this switch does not offer externs other than v1model's")
    return []


def _entry_of(bundle: Bundle, message: Any) -> list[Any]:
    """Return, in a list, the direct counter or meter that a write names, with its present value.

    The list is empty if the table entry of the counter or meter does not exist.
    """
    found = tables.before(bundle, message.table_entry)
    whole = type(message)(table_entry=found[0] if found else message.table_entry)
    whole.table_entry.ClearField("action")
    if found and isinstance(message, p4.DirectCounterEntry):
        whole.data.CopyFrom(found[0].counter_data)
    elif found and found[0].HasField("meter_config"):
        whole.config.CopyFrom(found[0].meter_config)
    return [whole] if found else []


def _same(kind: str, bundle: Bundle, message: Any) -> list[Any]:
    found = action_profiles.read(kind, bundle, message)
    return [item for item in found if getattr(item, f"{kind}_id") == getattr(message, f"{kind}_id")]


KINDS = {
    "table_entry": EntityKind(_in_bundle(tables.write), tables.read, tables.before),
    "direct_counter_entry": EntityKind(
        _in_bundle(tables.write_direct_counter), tables.read_direct_counter, _entry_of
    ),
    "direct_meter_entry": EntityKind(
        _in_bundle(tables.write_direct_meter), tables.read_direct_meter, _entry_of
    ),
    "counter_entry": EntityKind(_in_bundle(cells.write_counter), cells.read_counters),
    "meter_entry": EntityKind(_in_bundle(cells.write_meter), cells.read_meters),
    "register_entry": EntityKind(_in_bundle(cells.write_register), cells.read_registers),
    "action_profile_member": EntityKind(
        _in_bundle(action_profiles.write_member),
        partial(action_profiles.read, "member"),
        partial(_same, "member"),
    ),
    "action_profile_group": EntityKind(
        _in_bundle(action_profiles.write_group),
        partial(action_profiles.read, "group"),
        partial(_same, "group"),
    ),
    "value_set_entry": EntityKind(_in_bundle(tables.write_value_set), tables.read_value_set),
    "packet_replication_engine_entry": EntityKind(_write_replication, replication.read),
    "digest_entry": EntityKind(_in_bundle(write_digest), read_digest),
    "extern_entry": EntityKind(_refuse_extern, _no_externs),
}
"""The functions of each kind of entity, by the kind's field in `p4.v1.Entity`."""


def write(device: Device, update: Any) -> None:
    """Apply one update to the device's bundle. Raises RequestError; then nothing has changed."""
    with device.switch.locked():
        _apply(device, update.type, update.entity)


def _apply(device: Device, kind: int, entity: Any) -> None:
    name, message = _content(entity, "the update names no entity")
    KINDS[name].write(device, kind, message)


def read(device: Device, entity: Any) -> list[Any]:
    """Return the entities that `entity`, one entity of a read request, selects. Raises RequestError."""
    name, message = _content(entity, "an entity of the read request is empty: it must name what to read")
    with device.switch.locked():
        return [p4.Entity(**{name: found}) for found in KINDS[name].read(device.bundle, message)]


def write_batch(
    device: Device,
    updates: Sequence[Any],
    *,
    all_or_none: bool,
    permit: Callable[[Any], None],
) -> list[RequestError | None]:
    """Apply updates in order; return the error of each, or None.

    With `all_or_none`, the first error reverts the earlier writes, all other updates fail as `Aborted`, and
    no packet sees an intermediate state.

    Args:
        device: The device.
        updates: The updates.
        all_or_none: Whether the updates are applied together or not at all.
        permit: Raises RequestError if the sender may not write an entity.
    """
    if not all_or_none:
        return [outcome(permit, each.entity) or outcome(write, device, each) for each in updates]
    undo: list[tuple[int, Any]] = []
    with device.switch.locked():
        for number, update in enumerate(updates):
            entity = update.entity
            try:
                permit(entity)
                inverse = _inverse(device, update.type, entity)
                _apply(device, update.type, entity)
            except RequestError as error:
                for kind, done in reversed(undo):
                    _apply(device, kind, done)
                aborted = Aborted(f"reverted or not begun, because update {number + 1} of the batch failed")
                return [error if other == number else aborted for other in range(len(updates))]
            undo += reversed(inverse)
    return [None] * len(updates)


def _inverse(device: Device, kind: int, entity: Any) -> list[tuple[int, Any]]:
    """Return the (kind, entity) updates that undo an update. Call it before the update is applied."""
    if kind == p4.Update.INSERT:
        return [(p4.Update.DELETE, entity)]
    name, message = _content(entity, "the update names no entity")
    of_kind = KINDS[name]
    found = (of_kind.before or of_kind.read)(device.bundle, message)
    again = p4.Update.INSERT if kind == p4.Update.DELETE else p4.Update.MODIFY
    return [(again, p4.Entity(**{name: item})) for item in found]


def _content(entity: Any, otherwise: str) -> tuple[str, Any]:
    name = entity.WhichOneof("entity")
    if name is None:
        raise InvalidArgument(otherwise)
    return name, getattr(entity, name)


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

    Raises InvalidArgument if `new` cannot take an entry, for example of a table whose key has
    changed, or gives an object's id to another object; `new` is then unusable.
    """
    _check_ids(old, new)
    new.groups.update(old.groups)
    new.sessions.update(old.sessions)
    new.digests.update({id_: kept for id_, kept in old.digests.items() if id_ in new.schema.digests})
    for id_, table in old.schema.tables.items():
        if id_ in new.schema.tables and not (table.const_entries or new.schema.tables[id_].const_entries):
            for entry in new.pipeline.entries(table.name):  # the new program's own
                new.pipeline.delete(table.name, entry)
    for name, write, messages in _all_written(old, new):
        for kind, message in messages:
            try:
                write(new, kind, message)
            except RequestError as error:
                raise InvalidArgument(f"{name} cannot be kept: {error}") from error
    _copy_cells(old, new)


def _check_ids(old: Bundle, new: Bundle) -> None:
    """Raise InvalidArgument if an id names different objects in the two programs: messages use ids."""
    kinds = new.schema.by_kind()
    for kind, objects in old.schema.by_kind().items():
        for id_, item in objects.items():
            other = kinds[kind].get(id_)
            if other is not None and other.name != item.name:
                raise InvalidArgument(
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
        and (
            (table.name, None, 0) in old.metadata
            or old.pipeline.default(table.name) != old.program.tables[table.name].default
        )
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
