"""Events of our packets at one place, from records of captures."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bmv2_topos.trace.captures import Record
from controller.switches.model import OUTCOMES
from hostlib import wire

_HEADER = struct.Struct(">BBHIIBBBBHHIHH")
_PLAIN_IPV4 = b"\x08\x00\x45"
_NAMES = {number: name for name, number in OUTCOMES.items()}
_REFUSED = frozenset({"truncated", "bad_checksum", "bad_version", "bad_kind", "bad_lanes", "bad_length"})
LOST = frozenset({"lost", "corrupted"})
"""Fates of packets lost by a link."""


@dataclass(frozen=True, slots=True)
class Event:
    """A packet at a place. Of a switch, `port` is the port; of a host it is None."""

    time_ns: int
    place: str
    port: int | None
    inbound: bool | None
    kind: int
    flags: int
    job: int
    psn: int
    bitmap: int
    fan_in: int
    priority: int
    epoch: int
    node: int
    tag: int
    fate: str = ""
    """The end of its way here: lost, corrupted, queue_full, blocked, no_program; "": it went on."""
    outcome: str | None = None
    """Its outcome, reported by the ingress switch."""
    slot: int | None = None
    waited_ns: int = 0
    """Time in the queue of its egress port."""
    lanes: int = 0
    """Number of values that it carries, each of 4 bytes, padding included."""
    target: int = wire.TARGET_ALL
    """The receivers of the lanes of its sum; see docs/reference/protocol/collectives.md."""

    @property
    def kind_name(self) -> str:
        """Its kind in words."""
        return wire.NAMES_OF_KINDS.get(self.kind, f"kind {self.kind}")

    @property
    def flag_names(self) -> list[str]:
        """Its flags in words."""
        return [name for bit, name in wire.NAMES_OF_FLAGS.items() if self.flags & bit]

    @property
    def lost(self) -> bool:
        """True if a link or a full queue lost it."""
        return self.fate in LOST or self.fate == "queue_full"

    @property
    def resent(self) -> bool:
        """True if its sender marks it as resent."""
        return bool(self.flags & wire.FLAG_RESEND)


def events_of(records: Iterable[Record]) -> list[Event]:
    """Return the events of the records that belong to our packets, in order of time."""
    return sorted(_events(records), key=lambda event: event.time_ns)


def _events(records: Iterable[Record]) -> Iterator[Event]:
    for record in records:
        fields = _header(record.frame)
        if fields is None:
            continue
        version_kind, flags, job, psn, bitmap, fan_in, priority, _, epoch, _, *others = fields
        lanes, tag, node, target = others
        words = dict(word.split("=", 1) for word in record.comment.split() if "=" in word)
        place, slash, port = record.place.rpartition("/")
        outcome = _NAMES.get(int(words["outcome"])) if "outcome" in words else None
        yield Event(
            *(record.time_ns, place if slash else record.place, int(port) if slash else None, record.inbound),
            *(version_kind & 15, flags, job, psn, bitmap, fan_in, priority, epoch, node, tag),
            fate="" if words.get("fate") == "duplicated" else words.get("fate", ""),
            outcome=outcome,
            slot=int(words["index"]) if "index" in words and outcome not in _REFUSED else None,
            waited_ns=1000 * int(words.get("waited_us", 0)),
            lanes=lanes,
            target=target,
        )


def _header(frame: bytes) -> tuple[int, ...] | None:
    """Return the fields of our header, None if the frame has none."""
    if len(frame) < wire.FRAME_PREFIX_BYTES + _HEADER.size:
        return None
    if frame[12:15] != _PLAIN_IPV4 or frame[23] != wire.PROTO_UDP:
        return None
    ports = struct.unpack_from(">HH", frame, 34)
    if wire.INA_UDP_PORT not in ports or frame[42] >> 4 != wire.INA_VERSION:
        return None
    return _HEADER.unpack_from(frame, wire.FRAME_PREFIX_BYTES)
