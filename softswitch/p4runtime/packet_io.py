"""Packets between controller and switch: metadata fields to and from the header before the frame.

A program that talks with the controller declares headers ``@controller_header("packet_in")`` and
``("packet_out")``. On the CPU port they precede the frame; in P4Runtime their fields are metadata.
A program without such a header exchanges bare frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import translate
from softswitch.p4runtime.errors import InvalidArgument
from softswitch.p4runtime.schema import Param, Schema, listing


def from_packet_out(schema: Schema, message: Any) -> bytes:
    """Build the frame that enters at the CPU port. Raises InvalidArgument if the metadata do not fit."""
    fields = schema.packet_headers.get("packet_out", ())
    by_id = {f.id: f for f in fields}
    values: dict[int, int] = {}
    for metadata in message.metadata:
        if metadata.metadata_id not in by_id:
            raise InvalidArgument(
                f"packet_out has no metadata {metadata.metadata_id}; {listing('metadata field', fields)}"
            )
        field = by_id[metadata.metadata_id]
        values[field.id] = translate.decode(metadata.value, field.width, f"metadata '{field.name}'")
    missing = [f.name for f in fields if f.id not in values]
    if missing:
        raise InvalidArgument(f"packet_out lacks metadata {', '.join(missing)}")
    header = 0
    for f in fields:
        header = header << f.width | values[f.id]
    return header.to_bytes(_header_bytes(fields), "big") + bytes(message.payload)


def to_packet_in(schema: Schema, frame: bytes) -> Any:
    """Build the PacketIn of a frame that left at the CPU port.

    A frame shorter than the packet_in header is passed on whole, without metadata.
    """
    fields = schema.packet_headers.get("packet_in", ())
    length = _header_bytes(fields)
    if len(frame) < length:
        return p4.PacketIn(payload=frame)
    header = int.from_bytes(frame[:length], "big")
    message = p4.PacketIn(payload=frame[length:])
    shift = 8 * length
    for f in fields:
        shift -= f.width
        value = header >> shift & ((1 << f.width) - 1)
        message.metadata.add(metadata_id=f.id, value=translate.encode(value))
    return message


def _header_bytes(fields: Sequence[Param]) -> int:
    """Headers are whole bytes: the compiler sees to it."""
    return sum(f.width for f in fields) // 8
