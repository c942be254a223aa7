"""Events: aggregation packets seen at a host or a switch port, from the records of captures."""

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
"""Fates of packets that a link lost."""


@dataclass(frozen=True, slots=True)
class Event:
    """An aggregation packet seen at a place: a port of a switch, or a host (`port` is None)."""

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
    """Reason why the packet got no further: lost, corrupted, queue_full, blocked or no_program; "": the
    packet went on."""
    outcome: str | None = None
    """Outcome that the switch reported for the packet at the ingress port; None: the switch reported none."""
    slot: int | None = None
    waited_ns: int = 0
    """Time in ns that the packet waited in the queue of its egress port."""
    lanes: int = 0
    """Number of lanes (values of 4 bytes) in the packet, including padding."""
    target: int = wire.TARGET_ALL
    """Ranks that receive the lanes of the packet's sum, encoded as in
    docs/reference/protocol/collectives.md."""

    @property
    def kind_name(self) -> str:
        """Name of the packet's kind."""
        return wire.NAMES_OF_KINDS.get(self.kind, f"kind {self.kind}")

    @property
    def flag_names(self) -> list[str]:
        """Names of the packet's flags."""
        return [name for bit, name in wire.NAMES_OF_FLAGS.items() if self.flags & bit]

    @property
    def lost(self) -> bool:
        """True if a link or a full queue lost the packet."""
        return self.fate in LOST or self.fate == "queue_full"

    @property
    def resent(self) -> bool:
        """True if the sender has marked the packet as resent."""
        return bool(self.flags & wire.FLAG_RESEND)


def events_of(records: Iterable[Record]) -> list[Event]:
    """Return the events of all aggregation packets among the records, in order of time."""
    return sorted(_events(records), key=lambda event: event.time_ns)


def _events(records: Iterable[Record]) -> Iterator[Event]:
    for record in records:
        fields = _header(record.frame)
        if fields is None:
            continue
        version_kind, flags, job, psn, bitmap, fan_in, priority, _, epoch, _, *rest = fields
        lanes, tag, node, target = rest
        notes = dict(note.split("=", 1) for note in record.comment.split() if "=" in note)
        place, slash, port = record.place.rpartition("/")
        outcome = _NAMES.get(int(notes["outcome"])) if "outcome" in notes else None
        yield Event(
            *(record.time_ns, place if slash else record.place, int(port) if slash else None, record.inbound),
            *(version_kind & 15, flags, job, psn, bitmap, fan_in, priority, epoch, node, tag),
            fate="" if notes.get("fate") == "duplicated" else notes.get("fate", ""),
            outcome=outcome,
            slot=int(notes["index"]) if "index" in notes and outcome not in _REFUSED else None,
            waited_ns=1000 * int(notes.get("waited_us", 0)),
            lanes=lanes,
            target=target,
        )


def _header(frame: bytes) -> tuple[int, ...] | None:
    """Return the fields of a frame's aggregation header; None if it has none."""
    if len(frame) < wire.FRAME_PREFIX_BYTES + _HEADER.size:
        return None
    if frame[12:15] != _PLAIN_IPV4 or frame[23] != wire.PROTO_UDP:
        return None
    ports = struct.unpack_from(">HH", frame, 34)
    if wire.INA_UDP_PORT not in ports or frame[42] >> 4 != wire.INA_VERSION:
        return None
    return _HEADER.unpack_from(frame, wire.FRAME_PREFIX_BYTES)
