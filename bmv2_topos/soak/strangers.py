"""Frames that a switch must refuse, each made from one that it took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire

_HEADER = wire.FRAME_PREFIX_BYTES
_NO_LANES = _HEADER + wire.INA_BYTES
_ADDRESSES = wire.ETHERNET_BYTES + 12
"""Offset of the IPv4 addresses: 8 bytes, every one of which the header checksum protects."""

Packet = NDArray[Any]
"""One packet of `wire.packet_dtype`."""


def _epoch(packet: Packet) -> None:
    packet["epoch"] ^= 0x55


def _rank(packet: Packet) -> None:
    packet["bitmap"] = 0x8000_0001


def _nobody(packet: Packet) -> None:
    packet["bitmap"] = 0


def _node(packet: Packet) -> None:
    packet["node"] += 1


def _fan_in(packet: Packet) -> None:
    packet["fan_in"] += 1


def _version(packet: Packet) -> None:
    packet["version_kind"] = wire.KIND_GRADIENT


def _kind(packet: Packet) -> None:
    packet["version_kind"] = wire.version_kind(wire.KIND_REMINDER + 1)


def _lanes(packet: Packet) -> None:
    packet["lanes"] -= 1


def _valid(packet: Packet) -> None:
    packet["valid"] = packet["lanes"] + 1


def _job(packet: Packet) -> None:
    packet["job"] = 0xFFF0


def _direction(packet: Packet) -> None:
    packet["version_kind"] = wire.version_kind(wire.KIND_STATUS)
    packet["lanes"] = packet["valid"] = 0


_CHANGES: dict[str, tuple[str, Callable[[Packet], None]]] = {
    "another epoch": ("wrong_epoch", _epoch),
    "bits of two ranks": ("wrong_rank", _rank),
    "no rank": ("wrong_rank", _nobody),
    "another node": ("wrong_rank", _node),
    "another fan-in": ("wrong_fan_in", _fan_in),
    "another version": ("bad_version", _version),
    "no such kind": ("bad_kind", _kind),
    "too few lanes": ("bad_lanes", _lanes),
    "too many valid": ("bad_length", _valid),
    "another job": ("unknown_job", _job),
    "an order from below": ("wrong_direction", _direction),
}

FROM_ELSEWHERE = "another port"
KINDS = (FROM_ELSEWHERE, *_CHANGES, "cut off", "too long", "damaged address")


def forge(kind: str, frame: bytes, lanes: int) -> tuple[bytes, str]:
    """Return a frame made from a contribution, and the outcome that it has to be counted as.

    A frame of the kind `FROM_ELSEWHERE` is unchanged: it has to enter at a port of no member.
    """
    if kind == FROM_ELSEWHERE:
        return frame, "wrong_port"
    if kind == "cut off":
        return frame[: _NO_LANES - 1], "truncated"
    if kind == "too long":
        return frame + b"\0", "bad_length"
    if kind == "damaged address":
        return damaged(frame, 5), "bad_checksum"
    outcome, change = _CHANGES[kind]
    packet = np.frombuffer(frame, wire.packet_dtype(lanes, framed=True)).copy()
    change(packet)
    changed = packet.tobytes()
    if kind == "an order from below":
        changed = _shortened(packet)
    return changed, outcome


def damaged(frame: bytes, which: int) -> bytes:
    """Return a frame with a bit of its IPv4 addresses flipped, chosen by `which`."""
    at = _ADDRESSES + which // 8 % 8
    return frame[:at] + bytes([frame[at] ^ 1 << which % 8]) + frame[at + 1 :]


def _shortened(packet: Packet) -> bytes:
    """Return the frame without its lanes, with lengths and checksum to fit."""
    packet["udp_length"] = wire.UDP_BYTES + wire.INA_BYTES
    packet["ip_total_len"] = wire.IPV4_BYTES + wire.UDP_BYTES + wire.INA_BYTES
    packet["ip_checksum"] = 0
    header = packet.tobytes()[wire.ETHERNET_BYTES : wire.ETHERNET_BYTES + wire.IPV4_BYTES]
    packet["ip_checksum"] = wire.ipv4_checksum(header)
    return packet.tobytes()[:_NO_LANES]
