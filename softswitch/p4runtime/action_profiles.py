"""Members and groups of action profiles, and the table entries that name them.

The data path stores the action of each member and, for groups, one row per (group, slot): see `ir.Table`.
When a member or group changes, every entry that names the member or group is written again to the data path.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.p4runtime import translate
from softswitch.p4runtime.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unimplemented,
)
from softswitch.p4runtime.schema import ProfileInfo, TableSchema
from softswitch.p4runtime.state import Bundle, EntryKey, ProfileState, check_kind

_OWN_GROUPS = 1 << 31
"""First number of the groups made for action sets; a controller's groups have smaller numbers."""

MEMBER, GROUP = "action_profile_member_id", "action_profile_group_id"


def invocation(bundle: Bundle, table: TableSchema, action: Any) -> ir.Invocation:
    """Return the invocation for an entry's ``TableAction`` that names a member or a group.

    Raises RequestError.
    """
    assert table.implementation is not None
    profile = bundle.schema.profiles[table.implementation]
    state = bundle.profiles.setdefault(profile.id, ProfileState())
    match action.WhichOneof("type"):
        case "action_profile_member_id":
            number = action.action_profile_member_id
            return _of_member(bundle, table, _known(state.members, "member", number, profile))
        case "action_profile_group_id" if profile.selector:
            number = action.action_profile_group_id
            slots = _slots(_known(state.groups, "group", number, profile))
            return ir.Invocation(ir.group_action(table.name), (number, len(slots)))
        case other:
            wanted = "a member, a group or an action set" if profile.selector else "a member"
            raise InvalidArgument(f"'{table.name}' takes {wanted} of '{profile.name}', not {other}")


@contextmanager
def invoked(bundle: Bundle, table: TableSchema, action: Any, key: EntryKey) -> Iterator[ir.Invocation]:
    """Yield the invocation of the entry `key` to a ``with`` block that writes the entry.

    The entry's action set, if any, is written before the entry, and deleted if the entry is refused.

    Args:
        bundle: The program and its state.
        table: The entry's table.
        action: The entry's ``TableAction``.
        key: The entry's key.
    """
    if action.WhichOneof("type") != "action_profile_action_set":
        yield invocation(bundle, table, action)
        release(bundle, table, key)
        return
    number, slots = _write_set(bundle, table, action.action_profile_action_set)
    try:
        yield ir.Invocation(ir.group_action(table.name), (number, slots))
    except BaseException:
        _clear_rows(bundle, table, number)
        raise
    release(bundle, table, key)
    _state(bundle, table).one_shots[key] = number


def release(bundle: Bundle, table: TableSchema, key: EntryKey) -> None:
    """Remove the action set that belongs to the entry `key`, if any."""
    if table.implementation is not None:
        number = _state(bundle, table).one_shots.pop(key, None)
        if number is not None:
            _clear_rows(bundle, table, number)


def _state(bundle: Bundle, table: TableSchema) -> ProfileState:
    assert table.implementation is not None
    return bundle.profiles.setdefault(table.implementation, ProfileState())


def _write_set(bundle: Bundle, table: TableSchema, actions: Any) -> tuple[int, int]:
    """Write the rows of an action set to a group; return the group's number and its number of rows."""
    assert table.implementation is not None
    profile = bundle.schema.profiles[table.implementation]
    if not profile.selector:
        raise InvalidArgument(
            f"'{profile.name}' is not a selector: entries of '{table.name}' name one member"
        )
    if actions.HasField("group_action") or actions.action_selection_mode == actions.RANDOM:
        raise Unimplemented("action sets with a group action or a random choice are not supported")
    runs: list[ir.Invocation] = []
    for choice in actions.action_profile_actions:
        if choice.weight < 1:
            raise InvalidArgument(f"an action of the set has weight {choice.weight}; want 1 or more")
        if choice.WhichOneof("watch_kind"):
            raise Unimplemented("watch ports of actions are not supported")
        called = translate.invocation(
            bundle.schema, table, p4.TableAction(action=choice.action), default=False
        )
        if len(runs) + choice.weight > profile.group_limit:
            raise ResourceExhausted(
                f"more than {profile.group_limit} actions, by weight, in a set of '{profile.name}'"
            )
        runs += [called] * choice.weight
    if not runs:
        raise InvalidArgument(f"the action set for '{table.name}' is empty")
    taken = set(_state(bundle, table).one_shots.values())
    number = next(n for n in itertools.count(_OWN_GROUPS) if n not in taken)
    _insert_rows(bundle, table, number, runs)
    return number, len(runs)


def _clear_rows(bundle: Bundle, table: TableSchema, group: int) -> None:
    members = ir.members_table(table.name)
    for row in [row for row in bundle.pipeline.entries(members) if row.patterns[0].value == group]:
        bundle.pipeline.delete(members, row)


def _insert_rows(bundle: Bundle, table: TableSchema, group: int, runs: Iterable[ir.Invocation]) -> None:
    for slot, called in enumerate(runs):
        key = (ir.Pattern("exact", group), ir.Pattern("exact", slot))
        bundle.pipeline.insert(ir.members_table(table.name), ir.ConstEntry(key, called, 0))


def _of_member(bundle: Bundle, table: TableSchema, member: Any) -> ir.Invocation:
    return translate.invocation(bundle.schema, table, p4.TableAction(action=member.action), default=False)


def _known(things: dict[int, Any], kind: str, number: int, profile: ProfileInfo) -> Any:
    if number not in things:
        raise NotFound(f"'{profile.name}' has no {kind} {number}")
    return things[number]


def _slots(group: Any) -> list[int]:
    """Return the member id of each slot of a group; a member's weight is its number of slots."""
    return [member.member_id for member in group.members for _ in range(member.weight)]


def _tables(bundle: Bundle, profile: ProfileInfo) -> list[TableSchema]:
    return [table for table in bundle.schema.tables.values() if table.implementation == profile.id]


# --------------------------------------------------------------------------- members


def write_member(bundle: Bundle, kind: int, message: Any) -> None:
    """Insert, modify or delete a member. Raises RequestError; then nothing has changed."""
    profile = bundle.schema.find("action profile", message.action_profile_id)
    state = bundle.profiles.setdefault(profile.id, ProfileState())
    number = message.member_id
    if number == 0:
        raise InvalidArgument(f"a member of '{profile.name}' has number 0; numbers start at 1")
    if kind != p4.Update.DELETE:
        for table in _tables(bundle, profile):
            _of_member(bundle, table, message)  # every table of the profile must accept the action
    _insert_or_find(kind, state.members, number, f"member {number} of '{profile.name}'", profile.size)
    if kind == p4.Update.DELETE:
        in_groups = any(number in _slots(group) for group in state.groups.values())
        if in_groups or _entries_naming(bundle, profile, MEMBER, number):
            raise FailedPrecondition(f"member {number} of '{profile.name}' is in use")
        del state.members[number]
        return
    state.members[number] = message
    _refresh_entries(bundle, profile, MEMBER, number)
    for group in state.groups.values():
        if number in _slots(group):
            _fill_group(bundle, profile, state, group)


def _insert_or_find(kind: int, things: dict[int, Any], number: int, what: str, size: int) -> None:
    check_kind(kind, number in things, exists=f"{what} already exists", missing=f"{what} does not exist")
    if kind == p4.Update.INSERT and len(things) >= size:
        raise ResourceExhausted(f"no room for {what}: the profile's size is {size}")


# --------------------------------------------------------------------------- groups


def write_group(bundle: Bundle, kind: int, message: Any) -> None:
    """Insert, modify or delete a group. Raises RequestError; then nothing has changed."""
    profile = bundle.schema.find("action profile", message.action_profile_id)
    state = bundle.profiles.setdefault(profile.id, ProfileState())
    number = message.group_id
    if not 0 < number < _OWN_GROUPS:
        raise InvalidArgument(f"group {number} of '{profile.name}': numbers are 1 to {_OWN_GROUPS - 1}")
    if not profile.selector:
        raise InvalidArgument(f"'{profile.name}' is not a selector: it has no groups")
    if kind != p4.Update.DELETE:
        _check_group(profile, state, message)
    _insert_or_find(kind, state.groups, number, f"group {number} of '{profile.name}'", profile.size)
    if kind == p4.Update.DELETE:
        if _entries_naming(bundle, profile, GROUP, number):
            raise FailedPrecondition(f"group {number} of '{profile.name}' is in use")
        for table in _tables(bundle, profile):
            _clear_rows(bundle, table, number)
        del state.groups[number]
        return
    if kind == p4.Update.MODIFY and message.max_size != state.groups[number].max_size:
        raise InvalidArgument(
            f"max_size of group {number} is {state.groups[number].max_size}, and cannot be changed"
        )
    state.groups[number] = message
    _fill_group(bundle, profile, state, message)
    _refresh_entries(bundle, profile, GROUP, number)


def _fill_group(bundle: Bundle, profile: ProfileInfo, state: ProfileState, group: Any) -> None:
    for table in _tables(bundle, profile):
        _clear_rows(bundle, table, group.group_id)
        runs = [_of_member(bundle, table, state.members[member]) for member in _slots(group)]
        _insert_rows(bundle, table, group.group_id, runs)


def _check_group(profile: ProfileInfo, state: ProfileState, message: Any) -> None:
    numbers = [member.member_id for member in message.members]
    for member in message.members:
        _known(state.members, "member", member.member_id, profile)
        if member.weight < 1:
            raise InvalidArgument(f"member {member.member_id} has weight {member.weight}; want 1 or more")
        if member.WhichOneof("watch_kind"):
            raise Unimplemented("watch ports of members are not supported")
    if len(set(numbers)) < len(numbers):
        raise InvalidArgument(
            f"a member appears twice in group {message.group_id}; list it once, with a weight"
        )
    if message.max_size > profile.max_group_size > 0:
        most = profile.max_group_size
        raise InvalidArgument(
            f"group {message.group_id} has max_size {message.max_size}; '{profile.name}' allows {most}"
        )
    slots = sum(member.weight for member in message.members)
    most = min(message.max_size or profile.group_limit, profile.group_limit)
    if slots > most:
        raise ResourceExhausted(
            f"{slots} members, by weight, in group {message.group_id}; the limit is {most}"
        )


# --------------------------------------------------------------------------- entries with a member or a group


def _entries_naming(
    bundle: Bundle, profile: ProfileInfo, kind: str, number: int
) -> list[tuple[TableSchema, ir.ConstEntry]]:
    found = []
    for table in _tables(bundle, profile):
        for entry in bundle.pipeline.entries(table.name):
            action = bundle.choices.get((table.name, entry.patterns, entry.priority))
            if action is not None and action.WhichOneof("type") == kind and getattr(action, kind) == number:
                found.append((table, entry))
    return found


def _refresh_entries(bundle: Bundle, profile: ProfileInfo, kind: str, number: int) -> None:
    for table, entry in _entries_naming(bundle, profile, kind, number):
        action = bundle.choices[(table.name, entry.patterns, entry.priority)]
        runs = invocation(bundle, table, action)
        bundle.pipeline.modify(table.name, ir.ConstEntry(entry.patterns, runs, entry.priority))


# --------------------------------------------------------------------------- reading


def read(kind: str, bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one member or group, all of one profile or, for profile id 0, all of all profiles.

    Args:
        kind: "member" or "group".
        bundle: The program and its state.
        request: The ``ActionProfileMember`` or ``ActionProfileGroup`` that selects.
    """
    for state in _selected(bundle, request.action_profile_id):
        for number, found in getattr(state, f"{kind}s").items():
            if getattr(request, f"{kind}_id") in (0, number):
                yield found


def _selected(bundle: Bundle, id_: int) -> list[ProfileState]:
    if id_ == 0:
        return list(bundle.profiles.values())
    return [bundle.profiles.get(bundle.schema.find("action profile", id_).id, ProfileState())]
