"""Write and read PacketReplicationEngineEntry: multicast groups and clone sessions.

Entries are stored and read back as written; if the switch runs the bundle, a write also changes the switch.
Ports must be valid port numbers, but need not exist yet.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.engine.native import Members
from softswitch.engine.pipeline import DROP_PORT
from softswitch.engine.switch import Switch
from softswitch.p4runtime.errors import InvalidArgument, NotFound
from softswitch.p4runtime.state import Bundle, check_kind, members

_LARGEST = 0xFFFF
"""Largest group, session or replication id: standard_metadata and the engine have 16 bits for it."""


def write(bundle: Bundle, switch: Switch | None, kind: int, message: Any) -> None:
    """Apply one update of a group or session.

    Args:
        bundle: The program and its state.
        switch: The switch, if it runs this bundle.
        kind: Kind of the update.
        message: The entity.
    """
    gone = kind == p4.Update.DELETE
    match message.WhichOneof("type"):
        case "multicast_group_entry":
            entry = message.multicast_group_entry
            _write(bundle.groups, "multicast group", entry.multicast_group_id, kind, entry)
            if switch is not None:
                switch.set_multicast_group(entry.multicast_group_id, None if gone else members(entry))
        case "clone_session_entry":
            entry = message.clone_session_entry
            if entry.packet_length_bytes < 0:
                raise InvalidArgument(
                    f"packet_length_bytes is {entry.packet_length_bytes}; want 0 (all) or more"
                )
            if not 0 <= entry.class_of_service <= 7:
                raise InvalidArgument(f"class_of_service is {entry.class_of_service}; classes are 0 to 7")
            _write(bundle.sessions, "clone session", entry.session_id, kind, entry)
            if switch is not None:
                switch.set_clone_session(
                    entry.session_id, None if gone else members(entry), entry.packet_length_bytes
                )
        case _:
            raise InvalidArgument("the entry is neither a multicast_group_entry nor a clone_session_entry")


def set_group(bundle: Bundle, switch: Switch, group: int, copies: Members) -> None:
    """Insert or replace a multicast group, as a controller's write does.

    Args:
        bundle: The program and its state.
        switch: The switch that runs the program.
        group: Number of the group.
        copies: Port and replication id of each copy.

    Raises RequestError.
    """
    entry = p4.MulticastGroupEntry(multicast_group_id=group)
    _add(entry, copies)
    kind = p4.Update.MODIFY if group in bundle.groups else p4.Update.INSERT
    write(bundle, switch, kind, p4.PacketReplicationEngineEntry(multicast_group_entry=entry))


def set_session(bundle: Bundle, switch: Switch, session: int, copies: Members | None, truncate: int) -> None:
    """Insert, replace or (if `copies` is None) delete a clone session, as a controller's write does.

    Args:
        bundle: The program and its state.
        switch: The switch that runs the program.
        session: Number of the session.
        copies: Port and replication id of each copy; None: delete the session.
        truncate: Maximum length of a copy in bytes; 0: the whole packet.

    Raises RequestError.
    """
    entry = p4.CloneSessionEntry(session_id=session, packet_length_bytes=truncate)
    _add(entry, copies or ())
    kind = p4.Update.MODIFY if session in bundle.sessions else p4.Update.INSERT
    if copies is None:
        kind = p4.Update.DELETE
    write(bundle, switch, kind, p4.PacketReplicationEngineEntry(clone_session_entry=entry))


def _add(entry: Any, copies: Members) -> None:
    for port, instance in copies:
        entry.replicas.add(egress_port=port, instance=instance)


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one group or session or, for id 0, all groups or all sessions."""
    match request.WhichOneof("type"):
        case "multicast_group_entry":
            wanted = request.multicast_group_entry.multicast_group_id
            for entry in _chosen(bundle.groups, "multicast group", wanted):
                yield p4.PacketReplicationEngineEntry(multicast_group_entry=entry)
        case "clone_session_entry":
            wanted = request.clone_session_entry.session_id
            for entry in _chosen(bundle.sessions, "clone session", wanted):
                yield p4.PacketReplicationEngineEntry(clone_session_entry=entry)
        case _:
            raise InvalidArgument("the entry is neither a multicast_group_entry nor a clone_session_entry")


def _write(entries: dict[int, Any], what: str, id_: int, kind: int, entry: Any) -> None:
    if not 0 < id_ <= _LARGEST:
        raise InvalidArgument(f"{what} {id_} is out of range; ids are 1 to {_LARGEST}")
    to = "modify" if kind == p4.Update.MODIFY else "delete"
    check_kind(
        kind,
        id_ in entries,
        exists=f"{what} {id_} exists already; modify it",
        missing=f"there is no {what} {id_} to {to}",
    )
    if kind == p4.Update.DELETE:
        del entries[id_]
    else:
        _check(what, id_, entry)
        entries[id_] = copy.deepcopy(entry)


def _check(what: str, id_: int, entry: Any) -> None:
    replicas = members(entry)
    for port, instance in replicas:
        if not 0 <= port < DROP_PORT:
            raise InvalidArgument(f"{what} {id_} names port {port}; ports are 0 to {DROP_PORT - 1}")
        if instance > _LARGEST:
            raise InvalidArgument(f"{what} {id_} has instance {instance}; the largest is {_LARGEST}")
    (pair, count), *_ = Counter(replicas).most_common(1) or [((0, 0), 0)]
    if count > 1:
        raise InvalidArgument(
            f"{what} {id_} lists port {pair[0]} with instance {pair[1]} {count} times; list each pair once"
        )


def _chosen(entries: dict[int, Any], what: str, wanted: int) -> list[Any]:
    if wanted == 0:
        return list(entries.values())
    if wanted not in entries:
        raise NotFound(f"there is no {what} {wanted}")
    return [entries[wanted]]
