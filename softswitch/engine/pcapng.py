"""Capture files: pcapng (draft-ietf-opsawg-pcapng), with nanoseconds.

The engine returns captures as packet blocks of interface 0; a file is a `file_header` followed by such
blocks. A block's comment consists of words ``name=value``, which ``runtime/engine_capture.c`` lists.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

NOTES = 8
NAME_BYTES = 31
"""`NOTES` is the maximum number of metadata fields recorded for each packet.

`NAME_BYTES` is the maximum length of a field's name in bytes.
"""

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER, _ETHERNET, _NANOSECONDS = 0x1A2B3C4D, 1, 9
_COMMENT, _FLAGS = 1, 2
_NAME, _RESOLUTION, _APPLICATION = 2, 9, 4
_INBOUND, _OUTBOUND = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """The content of captures at the ports of a switch."""

    notes: tuple[str, ...] = ()
    """Names of the metadata to record for each received packet; names that the program lacks are ignored."""
    snap: int = 65535
    """Maximum number of bytes of a frame to record."""
    capacity: int = 64 << 20
    """Maximum number of bytes of unread records to keep for each port; further records are lost."""
    epoch_ns: int = 0
    """Number that is added to all times in the records: the switch's time 0 in nanoseconds since 1970.

    For a switch in virtual time, use 0.
    """

    def __post_init__(self) -> None:
        long = [name for name in self.notes if len(name.encode()) > NAME_BYTES]
        if len(self.notes) > NOTES or long:
            raise ValueError(
                f"notes {', '.join(self.notes)}: want at most {NOTES} names of up to {NAME_BYTES} bytes each"
            )
        if self.snap < 1 or self.capacity < 1:
            raise ValueError(f"snap {self.snap}, capacity {self.capacity}: want 1 byte or more")


def file_header(interface: str, snap: int) -> bytes:
    """Return the beginning of a file for one interface: the section block and the interface's block."""
    section = struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1) + _option(_APPLICATION, b"ina") + _END
    options = _option(_NAME, interface.encode()) + _option(_RESOLUTION, bytes([_NANOSECONDS])) + _END
    return _block(_SECTION, section) + _block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, snap) + options)


def packet_block(frame: bytes, time_ns: int, *, inbound: bool, comment: str = "", snap: int = 65535) -> bytes:
    """Return the record of a frame.

    Args:
        frame: The frame.
        time_ns: The frame's time in nanoseconds since 1970.
        inbound: Whether the frame was received; if not, it was sent.
        comment: A comment.
        snap: Maximum number of bytes of the frame to keep.
    """
    kept = frame[:snap]
    head = struct.pack("<IIIII", 0, time_ns >> 32, time_ns & 0xFFFFFFFF, len(kept), len(frame))
    options = _option(_COMMENT, comment.encode()) if comment else b""
    options += _option(_FLAGS, struct.pack("<I", _INBOUND if inbound else _OUTBOUND)) + _END
    return _block(_PACKET, head + _padded(kept) + options)


_END = bytes(4)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _block(kind: int, body: bytes) -> bytes:
    total = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + total + body + total
