"""One update or one read of any entity, on the part of the bundle that it concerns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import counters, replication, tables, value_sets
from softswitch.p4runtime.errors import InvalidArgument, Unimplemented
from softswitch.p4runtime.state import Device

_UNSUPPORTED = {
    "extern_entry": "externs other than v1model's",
    "action_profile_member": "action profiles",
    "action_profile_group": "action profiles",
    "meter_entry": "meters",
    "direct_meter_entry": "meters",
    "register_entry": "access to registers (as on BMv2); programs report through counters and packets",
    "digest_entry": "digests",
}

# Of these no program here has any, so that reading all of them finds none; ids of what they belong to.
_NONE_OF = {
    "extern_entry": "extern_type_id",
    "action_profile_member": "action_profile_id",
    "action_profile_group": "action_profile_id",
    "meter_entry": "meter_id",
    "digest_entry": "digest_id",
}


def write(device: Device, update: Any) -> None:
    """Apply one update to the device's bundle. Raises RequestError, and then has changed nothing."""
    bundle = device.bundle
    entity = update.entity
    with device.switch.locked():
        match kind := entity.WhichOneof("entity"):
            case "table_entry":
                tables.write(bundle, update.type, entity.table_entry)
            case "direct_counter_entry":
                tables.write_direct_counter(bundle, update.type, entity.direct_counter_entry)
            case "counter_entry":
                counters.write(bundle, update.type, entity.counter_entry)
            case "value_set_entry":
                value_sets.write(bundle, update.type, entity.value_set_entry)
            case "packet_replication_engine_entry":
                switch = device.switch if device.is_live(bundle) else None
                replication.write(bundle, switch, update.type, entity.packet_replication_engine_entry)
            case None:
                raise InvalidArgument("the update names no entity")
            case _:
                raise Unimplemented(f"this switch does not offer {_UNSUPPORTED[kind]}")


def read(device: Device, entity: Any) -> list[Any]:
    """Read the entities that one entity of a request selects. Raises RequestError."""
    with device.switch.locked():
        return list(_read(device, entity))


def _read(device: Device, entity: Any) -> Iterator[Any]:
    bundle = device.bundle
    match kind := entity.WhichOneof("entity"):
        case "table_entry":
            for table_entry in tables.read(bundle, entity.table_entry):
                yield p4.Entity(table_entry=table_entry)
        case "direct_counter_entry":
            for counter in tables.read_direct_counter(bundle, entity.direct_counter_entry):
                yield p4.Entity(direct_counter_entry=counter)
        case "counter_entry":
            for cell in counters.read(bundle, entity.counter_entry):
                yield p4.Entity(counter_entry=cell)
        case "value_set_entry":
            for members in value_sets.read(bundle, entity.value_set_entry):
                yield p4.Entity(value_set_entry=members)
        case "packet_replication_engine_entry":
            for entry in replication.read(bundle, entity.packet_replication_engine_entry):
                yield p4.Entity(packet_replication_engine_entry=entry)
        case "direct_meter_entry" if entity.direct_meter_entry.table_entry.table_id == 0:
            return
        case _ if kind in _NONE_OF and getattr(getattr(entity, kind), _NONE_OF[kind]) == 0:
            return
        case None:
            raise InvalidArgument("an entity of the read request is empty: it must say what to read")
        case _:
            raise Unimplemented(f"this switch does not offer {_UNSUPPORTED[kind]}")
