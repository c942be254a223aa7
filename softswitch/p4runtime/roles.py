"""Roles of controllers: the election of primaries (P4Runtime section 5), and the roles' permissions.

Only a role's primary may write. The primary is the connected controller whose election id is the highest ever
seen for the role. When the primary leaves, there is no primary until another controller claims the role with
an election id at least as high. This module has no gRPC: a client is any hashable object, and notifications
are return values.

Permissions come in Stratum's format (``stratum.P4RoleConfig``). The message type is built here, in a protobuf
pool of its own, so that it cannot conflict with another definition.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from softswitch.p4runtime.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)

MAX_STREAMS = 64
"""Maximum number of connected controllers of one role; each one occupies a thread of the server."""


NAME = "stratum.P4RoleConfig"

_ID_OF = {
    "table_entry": "table_entry.table_id",
    "direct_counter_entry": "direct_counter_entry.table_entry.table_id",
    "direct_meter_entry": "direct_meter_entry.table_entry.table_id",
    "counter_entry": "counter_entry.counter_id",
    "meter_entry": "meter_entry.meter_id",
    "register_entry": "register_entry.register_id",
    "action_profile_member": "action_profile_member.action_profile_id",
    "action_profile_group": "action_profile_group.action_profile_id",
    "value_set_entry": "value_set_entry.value_set_id",
    "digest_entry": "digest_entry.digest_id",
}
"""The field of a ``p4.v1.Entity`` with the id of its object, by the entity's kind."""


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """A role's permissions.

    The role may write the objects whose ids are in `exclusive` or `shared`; no other role may write the
    objects in `exclusive`. It receives the digests and idle notifications of all these objects. If
    `receives_packets` is True, the role receives PacketIns: all PacketIns or, with a `packet_filter`
    (metadata id, value), only those with this value in this metadata field. `message` is the configuration as
    it was received; None: there is none, and the role may write and receives everything.
    """

    exclusive: frozenset[int] = frozenset()
    shared: frozenset[int] = frozenset()
    packet_filter: tuple[int, bytes] | None = None
    receives_packets: bool = False
    loads_programs: bool = False
    message: Any = None

    def check_write(self, entity: Any) -> None:
        """Raise PermissionDenied if this role may not write an entity.

        Every role may write multicast groups and clone sessions.
        """
        path = _ID_OF.get(entity.WhichOneof("entity"))
        id_ = attrgetter(path)(entity) if self.message is not None and path else None
        if id_ is not None and id_ not in self.exclusive | self.shared:
            raise PermissionDenied(f"0x{id_:08x} is not among the ids of this role's configuration")

    def hears(self, message: Any) -> bool:
        """Return True if a stream message with digests or idle entries is for this role."""
        idle = message.idle_timeout_notification.table_entry
        id_ = idle[0].table_id if idle else message.digest.digest_id
        return self.message is None or id_ in self.exclusive | self.shared

    def takes(self, packet: Any) -> bool:
        """Return True if a PacketIn is for this role."""
        if not self.receives_packets or self.packet_filter is None:
            return self.receives_packets
        return any((m.metadata_id, m.value) == self.packet_filter for m in packet.metadata)


FULL = RoleConfig(receives_packets=True, loads_programs=True)
"""The permissions of a role without a configuration."""


class StreamStanding(Enum):
    """A controller's status, as an arbitration notification of P4Runtime tells it."""

    PRIMARY = "primary"
    BACKUP = "backup"
    NO_PRIMARY = "no primary"


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification to `client` about its status.

    `highest` is the highest election id of a primary so far, `config` the configuration that the last primary
    gave its role.
    """

    client: Any
    role: str
    standing: StreamStanding
    highest: int | None
    config: RoleConfig = FULL


@dataclass(slots=True)
class _Role:
    clients: dict[Hashable, int | None] = field(default_factory=dict)
    highest: int | None = None
    config: RoleConfig = FULL

    def primary(self) -> Hashable | None:
        if self.highest is None:
            return None
        return next((c for c, e in self.clients.items() if e == self.highest), None)


class Arbitration:
    """The controllers that are connected to one device."""

    def __init__(self) -> None:
        self._roles: dict[str, _Role] = {}
        self._role_of: dict[Hashable, str] = {}

    def update(
        self, client: Hashable, role_name: str, election_id: int | None, config: RoleConfig = FULL
    ) -> list[Notification]:
        """Process a MasterArbitrationUpdate; a client without an election id never becomes primary.

        Args:
            client: The client.
            role_name: Name of the client's role.
            election_id: The client's election id, or None.
            config: The role's configuration, from now on if the client is the primary.

        Returns the notifications to send. Raises RequestError if the client's stream must end; call `leave`
        for the client then.
        """
        known = self._role_of.get(client)
        if known is not None and known != role_name:
            raise FailedPrecondition(
                f"this stream has role '{known}'; open another one for role '{role_name}'"
            )
        role = self._roles.setdefault(role_name, _Role())
        if election_id is not None:
            for other, used in role.clients.items():
                if other != client and used == election_id:
                    raise InvalidArgument(f"election id {election_id} is used by another live controller")
        if known is None and len(role.clients) >= MAX_STREAMS:
            raise ResourceExhausted(f"{MAX_STREAMS} controllers of role '{role_name}' are connected already")

        before = role.primary()
        self._role_of[client] = role_name
        role.clients[client] = election_id
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            role.highest, role.config = election_id, config
            return self._notifications(role_name)
        return self._notifications(role_name) if before == client else [self._notification(role_name, client)]

    def leave(self, client: Hashable) -> list[Notification]:
        """Remove a client whose stream has ended.

        If the client was the primary, return the notifications for its role.
        """
        role_name = self._role_of.pop(client, None)
        if role_name is None:
            return []
        role = self._roles[role_name]
        was_primary = role.primary() == client
        del role.clients[client]
        return self._notifications(role_name) if was_primary else []

    def check_primary(self, role_name: str, election_id: int | None) -> None:
        """Raise an error unless the sender of a write with this role and election id is the primary."""
        role = self._roles.get(role_name)
        if role is None and role_name:
            raise NotFound(f"no controller has role '{role_name}'")
        primary = role.primary() if role else None
        if role is None or primary is None:
            raise PermissionDenied(
                "there is no primary controller; become the primary on a StreamChannel first"
            )
        if election_id != role.highest:
            raise PermissionDenied(f"election id {election_id} is not the primary's, which is {role.highest}")

    def config(self, role_name: str) -> RoleConfig:
        """Return the configuration of a role."""
        return self._roles[role_name].config

    def configs(self) -> dict[str, RoleConfig]:
        """Return the configurations of all roles that have connected clients."""
        return {name: role.config for name, role in self._roles.items() if role.clients}

    def role_of(self, client: Hashable) -> str | None:
        """Return the role of a client."""
        return self._role_of.get(client)

    def primaries(self) -> list[tuple[Any, RoleConfig]]:
        """Return the primary of every role that has one, with the role's configuration."""
        return [(p, role.config) for role in self._roles.values() if (p := role.primary()) is not None]

    def is_primary(self, client: Hashable) -> bool:
        """Return True if `client` is the primary of its role."""
        role_name = self._role_of.get(client)
        return role_name is not None and self._roles[role_name].primary() == client

    def _notifications(self, role_name: str) -> list[Notification]:
        """Return a notification for each client of the role, the primary's last.

        So backups learn that they are not the primary before the new primary learns that it is.
        """
        role = self._roles[role_name]
        primary = role.primary()
        backups = [self._notification(role_name, c) for c in role.clients if c != primary]
        return backups if primary is None else [*backups, self._notification(role_name, primary)]

    def _notification(self, role_name: str, client: Hashable) -> Notification:
        role = self._roles[role_name]
        primary = role.primary()
        standing = (
            StreamStanding.NO_PRIMARY
            if primary is None
            else StreamStanding.PRIMARY
            if primary == client
            else StreamStanding.BACKUP
        )
        return Notification(client, role_name, standing, role.highest, role.config)


def decode_role(role: Any) -> RoleConfig:
    """Return the configuration of a ``p4.v1.Role``. Raises InvalidArgument."""
    if not role.HasField("config"):
        return FULL
    if not role.name:
        raise InvalidArgument("the default role may do everything: it takes no configuration")
    message = _message_class()()
    if not role.config.Is(message.DESCRIPTOR):
        raise InvalidArgument(
            f"the configuration of role '{role.name}' is {role.config.type_url}; want {NAME}"
        )
    try:
        message.ParseFromString(role.config.value)
    except DecodeError as error:
        raise InvalidArgument(f"the configuration of role '{role.name}' is no {NAME}") from error
    chosen = message.packet_in_filter
    return RoleConfig(
        frozenset(message.exclusive_p4_ids),
        frozenset(message.shared_p4_ids),
        (chosen.metadata_id, chosen.value.lstrip(b"\0") or b"\0")
        if message.HasField("packet_in_filter")
        else None,
        message.receives_packet_ins,
        message.can_push_pipeline,
        role.config,
    )


def check_apart(name: str, config: RoleConfig, others: dict[str, RoleConfig]) -> None:
    """Raise InvalidArgument if role `name` and another role claim the same id, at least one exclusively."""
    for other_name, other in others.items():
        both = config.exclusive & (other.exclusive | other.shared) | config.shared & other.exclusive
        if both and other_name != name:
            raise InvalidArgument(
                f"roles '{name}' and '{other_name}' both claim 0x{min(both):08x}, at least one exclusively"
            )


@cache
def _message_class() -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="role_config.proto", package="stratum", syntax="proto3")
    config = file.message_type.add(name="P4RoleConfig")
    chosen = config.nested_type.add(name="PacketFilter")
    for owner, name, number, type_, label in (
        (chosen, "metadata_id", 1, kinds.TYPE_UINT32, kinds.LABEL_OPTIONAL),
        (chosen, "value", 2, kinds.TYPE_BYTES, kinds.LABEL_OPTIONAL),
        (config, "exclusive_p4_ids", 1, kinds.TYPE_UINT32, kinds.LABEL_REPEATED),
        (config, "shared_p4_ids", 2, kinds.TYPE_UINT32, kinds.LABEL_REPEATED),
        (config, "packet_in_filter", 3, kinds.TYPE_MESSAGE, kinds.LABEL_OPTIONAL),
        (config, "receives_packet_ins", 4, kinds.TYPE_BOOL, kinds.LABEL_OPTIONAL),
        (config, "can_push_pipeline", 5, kinds.TYPE_BOOL, kinds.LABEL_OPTIONAL),
    ):
        field = owner.field.add(name=name, number=number, type=type_, label=label)
        if type_ == kinds.TYPE_MESSAGE:
            field.type_name = ".stratum.P4RoleConfig.PacketFilter"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(NAME))
