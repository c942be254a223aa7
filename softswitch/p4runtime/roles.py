"""Permissions of roles: their configuration, in Stratum's format (``stratum.P4RoleConfig``).

The message is built here rather than generated, in a pool of its own, so that it is in nobody's way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from softswitch.p4runtime.errors import InvalidArgument, PermissionDenied

NAME = "stratum.P4RoleConfig"

_ID_OF = {
    "table_entry": "table_id",
    "counter_entry": "counter_id",
    "meter_entry": "meter_id",
    "register_entry": "register_id",
    "action_profile_member": "action_profile_id",
    "action_profile_group": "action_profile_id",
    "value_set_entry": "value_set_id",
    "digest_entry": "digest_id",
}


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """Ids that the role may write, alone or with others, packets that it gets, and more."""

    exclusive: frozenset[int] = frozenset()
    shared: frozenset[int] = frozenset()
    packet_filter: tuple[int, bytes] | None = None
    receives_packets: bool = False
    loads_programs: bool = False

    def check_write(self, entity: Any) -> None:
        """Raise PermissionDenied if an entity is none of this role's. Groups and sessions are everybody's."""
        kind = entity.WhichOneof("entity")
        if kind in ("direct_counter_entry", "direct_meter_entry"):
            id_ = getattr(entity, kind).table_entry.table_id
        elif kind in _ID_OF:
            id_ = getattr(getattr(entity, kind), _ID_OF[kind])
        else:
            return
        if id_ not in self.exclusive | self.shared:
            raise PermissionDenied(f"0x{id_:08x} is not among the ids of this role's configuration")

    def takes(self, packet: Any) -> bool:
        """Return True if a PacketIn is for this role."""
        if not self.receives_packets or self.packet_filter is None:
            return self.receives_packets
        return any((m.metadata_id, m.value) == self.packet_filter for m in packet.metadata)


def decode_role(role: Any) -> RoleConfig | None:
    """Return the configuration of a ``p4.v1.Role``; None: it may do everything. Raises InvalidArgument."""
    if not role.HasField("config"):
        return None
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
        (chosen.metadata_id, chosen.value) if message.HasField("packet_in_filter") else None,
        message.receives_packet_ins,
        message.can_push_pipeline,
    )


def check_apart(name: str, config: RoleConfig | None, others: dict[str, RoleConfig | None]) -> None:
    """Raise InvalidArgument if a role claims for itself alone what another one has, or the reverse."""
    for other_name, other in others.items():
        if config is None or other is None or other_name == name:
            continue
        both = config.exclusive & (other.exclusive | other.shared) | config.shared & other.exclusive
        if both:
            raise InvalidArgument(
                f"roles '{name}' and '{other_name}' both claim 0x{min(both):08x}, one of them alone"
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
