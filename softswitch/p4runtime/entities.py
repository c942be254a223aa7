"""Apply updates and batches of updates, and read entities. `KINDS` maps each kind of entity to its functions.

This module also handles digests: their entries, and their lists (P4Runtime sections 9.6 and 16.3).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import action_profiles, cells, replication, tables
from softswitch.p4runtime.cells import encode_data
from softswitch.p4runtime.errors import (
    Aborted,
    InvalidArgument,
    RequestError,
    Unimplemented,
)
from softswitch.p4runtime.schema import ArrayInfo
from softswitch.p4runtime.state import Bundle, Device, Subscription, Timeout, check_kind


def write_digest(bundle: Bundle, kind: int, message: Any) -> None:
    """Subscribe to a digest, change the delivery of its lists, or unsubscribe."""
    digest = _digest(bundle, message.digest_id)
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
        _digest(bundle, request.digest_id)
    for id_, subscription in bundle.digests.items():
        if request.digest_id in (0, id_):
            yield copy.deepcopy(subscription.entry)


def acknowledge(bundle: Bundle, message: Any) -> None:
    """Discard a list that the controller has acknowledged; acknowledging it twice is no error."""
    subscription = bundle.digests.get(_digest(bundle, message.digest_id).id)
    if subscription is not None:
        subscription.sent.pop(message.list_id, None)


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


def _digest(bundle: Bundle, id_: int) -> ArrayInfo:
    if id_ not in bundle.schema.digests:
        raise InvalidArgument(bundle.schema.describe_unknown("digest", id_))
    return bundle.schema.digests[id_]


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
    """Yield a StreamMessageResponse for each list of digests and for idle entries; lock the switch first."""
    now_us = bundle.now_us()
    if bundle.digests:
        for digest in due(bundle, 1000 * now_us):
            yield p4.StreamMessageResponse(digest=digest)
    idle = [
        tables.encoded(bundle, table, timeout.entry)
        for (table, _, _), timeout in bundle.timeouts.items()
        if _is_over(bundle, table, timeout, now_us)
    ]
    if idle:
        notification = p4.IdleTimeoutNotification(table_entry=idle, timestamp=1000 * now_us)
        yield p4.StreamMessageResponse(idle_timeout_notification=notification)


def _is_over(bundle: Bundle, table: str, timeout: Timeout, now_us: int) -> bool:
    """Return True if an entry has reached its idle timeout; return True only once after each hit."""
    last_us = bundle.pipeline.read_last_hit(table, timeout.entry)
    if 1000 * (now_us - last_us) < timeout.timeout_ns or timeout.told_us == last_us:
        return False
    timeout.told_us = last_us
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
    switch = device.switch if device.is_live(device.bundle) else None
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


def _member(bundle: Bundle, message: Any) -> list[Any]:
    found = action_profiles.read_members(bundle, message)
    return [item for item in found if item.member_id == message.member_id]


def _group(bundle: Bundle, message: Any) -> list[Any]:
    found = action_profiles.read_groups(bundle, message)
    return [item for item in found if item.group_id == message.group_id]


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
        _in_bundle(action_profiles.write_member), action_profiles.read_members, _member
    ),
    "action_profile_group": EntityKind(
        _in_bundle(action_profiles.write_group), action_profiles.read_groups, _group
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


def write_batch(device: Device, updates: Sequence[Any], *, all_or_none: bool) -> list[RequestError | None]:
    """Apply updates in order; return the error of each, or None.

    With `all_or_none`, the first error reverts the earlier writes, all other updates fail as `Aborted`, and
    no packet sees an intermediate state.
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
                aborted = Aborted(f"reverted or not begun, because update {number + 1} of the batch failed")
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
