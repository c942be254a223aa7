"""One update, one batch or one read of any entities: `KINDS` says which module does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import action_profiles, cells, digests, replication, tables
from softswitch.p4runtime.errors import Aborted, InvalidArgument, RequestError, Unimplemented
from softswitch.p4runtime.state import Bundle, Device


@dataclass(frozen=True, slots=True)
class Kind:
    """How entities of one kind are written and read.

    `before` returns what an update is about as it is now, so that it can be restored; without one that is
    what a read of the same entity finds.
    """

    write: Callable[[Device, int, Any], None]
    read: Callable[[Bundle, Any], Iterable[Any]]
    before: Callable[[Bundle, Any], list[Any]] | None = None


def _in_bundle(write: Callable[[Bundle, int, Any], None]) -> Callable[[Device, int, Any], None]:
    return lambda device, kind, message: write(device.bundle, kind, message)


def _write_replication(device: Device, kind: int, message: Any) -> None:
    switch = device.switch if device.is_live(device.bundle) else None
    replication.write(device.bundle, switch, kind, message)


def _refuse_extern(device: Device, kind: int, message: Any) -> None:
    raise Unimplemented("this switch does not offer externs other than v1model's")


def _no_externs(bundle: Bundle, request: Any) -> list[Any]:
    if request.extern_type_id:
        raise Unimplemented("this switch does not offer externs other than v1model's")
    return []


def _entry_of(bundle: Bundle, message: Any) -> list[Any]:
    """Return the direct counter or meter that a write is about, as it is now."""
    found = tables.before(bundle, message.table_entry)
    whole = type(message)(table_entry=found[0] if found else message.table_entry)
    whole.table_entry.ClearField("action")
    if found and isinstance(message, p4.DirectCounterEntry):
        whole.data.CopyFrom(found[0].counter_data)
    elif found and found[0].HasField("meter_config"):
        whole.config.CopyFrom(found[0].meter_config)
    return [whole] if found else []


def _member(bundle: Bundle, message: Any) -> list[Any]:
    found = action_profiles.read_members(bundle, message)
    return [item for item in found if item.member_id == message.member_id]


def _group(bundle: Bundle, message: Any) -> list[Any]:
    found = action_profiles.read_groups(bundle, message)
    return [item for item in found if item.group_id == message.group_id]


KINDS = {
    "table_entry": Kind(_in_bundle(tables.write), tables.read, tables.before),
    "direct_counter_entry": Kind(
        _in_bundle(tables.write_direct_counter), tables.read_direct_counter, _entry_of
    ),
    "direct_meter_entry": Kind(_in_bundle(tables.write_direct_meter), tables.read_direct_meter, _entry_of),
    "counter_entry": Kind(_in_bundle(cells.write_counter), cells.read_counters),
    "meter_entry": Kind(_in_bundle(cells.write_meter), cells.read_meters),
    "register_entry": Kind(_in_bundle(cells.write_register), cells.read_registers),
    "action_profile_member": Kind(
        _in_bundle(action_profiles.write_member), action_profiles.read_members, _member
    ),
    "action_profile_group": Kind(
        _in_bundle(action_profiles.write_group), action_profiles.read_groups, _group
    ),
    "value_set_entry": Kind(_in_bundle(tables.write_value_set), tables.read_value_set),
    "packet_replication_engine_entry": Kind(_write_replication, replication.read),
    "digest_entry": Kind(_in_bundle(digests.write), digests.read),
    "extern_entry": Kind(_refuse_extern, _no_externs),
}
"""All kinds of entities, by their fields of `p4.v1.Entity`."""


def write(device: Device, update: Any) -> None:
    """Apply one update to the device's bundle. Raises RequestError, and then has changed nothing."""
    with device.switch.locked():
        _apply(device, update.type, update.entity)


def _apply(device: Device, kind: int, entity: Any) -> None:
    name, message = _content(entity, "the update names no entity")
    KINDS[name].write(device, kind, message)


def read(device: Device, entity: Any) -> list[Any]:
    """Read the entities that one entity of a request selects. Raises RequestError."""
    name, message = _content(entity, "an entity of the read request is empty: it must say what to read")
    with device.switch.locked():
        return [p4.Entity(**{name: found}) for found in KINDS[name].read(device.bundle, message)]


def write_batch(device: Device, updates: Sequence[Any], *, all_or_none: bool) -> list[RequestError | None]:
    """Apply updates in order; return what each was refused with.

    With `all_or_none` the first refusal takes back what was done, the others are `Aborted`, and no packet
    sees anything in between.
    """
    if not all_or_none:
        return [_attempt(device, update) for update in updates]
    undo: list[tuple[int, Any]] = []
    with device.switch.locked():
        for number, update in enumerate(updates):
            entity = update.entity
            try:
                inverse = _inverse(device, update.type, entity)
                _apply(device, update.type, entity)
            except RequestError as error:
                for kind, done in reversed(undo):
                    _apply(device, kind, done)
                aborted = Aborted(f"taken back or not begun, because update {number + 1} of the batch failed")
                return [error if other == number else aborted for other in range(len(updates))]
            undo += reversed(inverse)
    return [None] * len(updates)


def _attempt(device: Device, update: Any) -> RequestError | None:
    try:
        write(device, update)
    except RequestError as error:
        return error
    return None


def _inverse(device: Device, kind: int, entity: Any) -> list[tuple[int, Any]]:
    """Return the updates that undo an update, as kinds of updates and entities, before it is applied."""
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
