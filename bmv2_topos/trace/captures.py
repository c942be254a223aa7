"""Reads capture files, pcapng and classic pcap, of our switches and of tcpdump, tshark or Wireshark.

Other files are refused. A file that ends within a record, because it is still being written or was cut off,
is read up to that record, and a warning is logged.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_ORDER = 0x1A2B3C4D
_CLASSIC = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
"""By the number at the start of a classic pcap file: the unit of a time stamp's fraction, in nanoseconds."""
_COMMENT, _FLAGS = 1, 2
_NAME, _RESOLUTION = 2, 9
_INBOUND = 1
_log = logging.getLogger(__name__)


class CaptureError(Exception):
    """A file is not a capture, or cannot be read; the message states which."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Record:
    """A captured frame, and where it was captured."""

    time_ns: int
    place: str
    """Name of the interface: ``SWITCH/PORT`` for our switches; else the file's name."""
    inbound: bool | None
    """True: the frame came in; False: the frame went out; None: the file does not state the direction."""
    frame: bytes
    comment: str = ""


@dataclass(frozen=True, slots=True)
class _Interface:
    name: str
    unit_ns: float


def read_files(paths: list[Path]) -> list[Record]:
    """Read captures from files and folders; return all records in order of time. Raises CaptureError."""
    records: list[Record] = []
    for path in paths:
        for file in _files(path):
            records += read_file(file)
    return sorted(records, key=lambda record: record.time_ns)


def read_file(path: Path) -> list[Record]:
    """Read one file. Raises CaptureError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror}") from error
    return list(read(data, path.stem, str(path)))


def read(data: bytes, name: str, source: str) -> Iterator[Record]:
    """Yield the records in a file's data.

    `name` (the file's stem) stands in for the interface name of records that have none; `source` is the
    file's name in messages. Raises CaptureError.
    """
    for order in "<>":
        if len(data) >= 24 and struct.unpack_from(f"{order}I", data)[0] in _CLASSIC:
            _say_rest(source, (yield from _read_classic(data, order, *_of_bmv2(name))))
            return
    if not data and _of_bmv2(name)[1] is not None:
        return  # BMv2 writes a file's head with its first packet
    if len(data) < 12 or struct.unpack_from("<I", data)[0] != _SECTION:
        raise CaptureError(f"{source}: not a capture file (pcapng, or pcap)")
    _say_rest(source, (yield from _read_pcapng(data, name)))


def _say_rest(source: str, rest: int) -> None:
    if rest:
        _log.warning(
            "%s: ends within a record, whose %d bytes are left out: the file is cut off, or is being written",
            source,
            rest,
        )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in (".pcap", ".pcapng"))
    if not found:
        raise CaptureError(f"{path}: no captures (*.pcapng, *.pcap) in this folder")
    return found


def _of_bmv2(name: str) -> tuple[str, bool | None]:
    """Return place and direction of a BMv2 capture's frames, from its name, such as ``s1-eth3_in``."""
    found = re.fullmatch(r"(.+)-eth(\d+)_(in|out)", name)
    return (f"{found[1]}/{found[2]}", found[3] == "in") if found else (name, None)


def _read_classic(data: bytes, order: str, name: str, inbound: bool | None) -> Generator[Record, None, int]:
    """Yield the records; return the number of bytes of an incomplete record at the end."""
    unit = _CLASSIC[struct.unpack_from(f"{order}I", data)[0]]
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, kept, _ = struct.unpack_from(f"{order}IIII", data, at)
        if at + 16 + kept > len(data):
            break
        yield Record(seconds * 10**9 + fraction * unit, name, inbound, data[at + 16 : at + 16 + kept])
        at += 16 + kept
    return len(data) - at


def _read_pcapng(data: bytes, name: str) -> Generator[Record, None, int]:
    """Yield the records; return the number of bytes of an incomplete block at the end."""
    order, at = "<", 0
    interfaces: list[_Interface] = []
    while at + 12 <= len(data):
        kind, length = struct.unpack_from(f"{order}II", data, at)
        if kind == _SECTION:
            order = "<" if struct.unpack_from("<I", data, at + 8)[0] == _ORDER else ">"
            length = struct.unpack_from(f"{order}I", data, at + 4)[0]
            interfaces = []
        if length < 12 or at + length > len(data):
            break
        body = data[at + 8 : at + length - 4]
        if kind == _INTERFACE:
            interfaces.append(_interface(body, order, name))
        elif kind == _PACKET and len(body) >= 20:
            yield _packet(body, order, interfaces)
        at += length
    return len(data) - at


def _interface(body: bytes, order: str, name: str) -> _Interface:
    options = _options(body[8:], order)
    resolution = options.get(_RESOLUTION, b"\x06")[0]
    unit = 2.0 ** -(resolution & 0x7F) if resolution & 0x80 else 10.0**-resolution
    shown = options.get(_NAME, b"").decode(errors="replace")
    return _Interface(shown if "/" in shown else name, unit * 1e9)


def _packet(body: bytes, order: str, interfaces: list[_Interface]) -> Record:
    number, high, low, kept, _ = struct.unpack_from(f"{order}IIIII", body)
    interface = interfaces[number] if number < len(interfaces) else _Interface("?", 1000)
    options = _options(body[20 + kept + -kept % 4 :], order)
    flags = struct.unpack(f"{order}I", options.get(_FLAGS, bytes(4)))[0] & 3
    ticks = high << 32 | low
    time_ns = ticks if interface.unit_ns == 1 else round(ticks * interface.unit_ns)
    return Record(
        time_ns,
        interface.name,
        None if flags == 0 else flags == _INBOUND,
        body[20 : 20 + kept],
        options.get(_COMMENT, b"").decode(errors="replace"),
    )


def _options(data: bytes, order: str) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(f"{order}HH", data, at)
        if code == 0:
            break
        found[code] = data[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4
    return found
