"""Ways from host to host of a `veth_bed`, with traffic for them and counters of arrivals."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

from bmv2_topos.testbeds.netns.namespaces import inside
from ina.bench.veth_bed import INTERFACE, Bed, ip, number

BATCH = 32
"""Frames per system call."""


class _Part(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """``struct msghdr``."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("parts", ctypes.POINTER(_Part)),
        ("part_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """``struct mmsghdr``."""

    _fields_ = (("header", _Header), ("sent_bytes", ctypes.c_uint32))


@dataclass(slots=True)
class FrameSender:
    """Sends copies of a frame by a packet socket that is bound to an interface."""

    at: socket.socket
    frame: bytes
    _messages: Any = field(init=False)
    _keep: Any = field(init=False)
    _library: Any = field(init=False)

    def __post_init__(self) -> None:
        buffer = ctypes.create_string_buffer(self.frame, len(self.frame))
        part = _Part(ctypes.addressof(buffer), len(self.frame))
        self._keep = (buffer, part)
        message = _Message(_Header(parts=ctypes.pointer(part), part_count=1))
        self._messages = (_Message * BATCH)(*(message,) * BATCH)
        self._library = ctypes.CDLL(None, use_errno=True)

    def send(self, count: int) -> int:
        """Send `count` copies, `BATCH` at most; return how many of them the socket took. Raises OSError."""
        sent = self._library.sendmmsg(self.at.fileno(), self._messages, min(count, BATCH), 0)
        if sent < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(sent)


PAYLOAD = 1024
"""Bytes of a datagram."""
FRAME = PAYLOAD + 42
"""Bytes of its frame, with headers."""
SUPERFRAME = 60
"""Datagrams of a superframe: as many as fit into 64 KiB."""

_UDP_SEGMENT, _UDP_GRO, _SO_RCVBUFFORCE = 103, 104, 33
_PORT = 7800
_NOBODYS_TYPE = b"\x90\x00"  # Ethernet's configuration testing: the receiving kernel drops it at once


class Link(Protocol):
    """A way from host to host. Both counts are of frames."""

    def send(self, frames: int) -> int:
        """Send at most `frames` frames; return how many were sent."""

    def arrived(self) -> int:
        """Return how many frames have arrived in all."""


class RawFrames:
    """Frames one by one from a packet socket of ``a``, counted at the interface of ``b``."""

    def __init__(self, on: Bed, frame_bytes: int) -> None:
        self._socket = inside(on.namespaces["a"], _packet_socket)
        addresses = number("b").to_bytes(6, "big") + number("a").to_bytes(6, "big")
        self._sender = FrameSender(self._socket, (addresses + _NOBODYS_TYPE).ljust(frame_bytes, b"\0"))
        self._counters = inside(on.namespaces["b"], _interface_counters)

    def send(self, frames: int) -> int:
        """Send frames; see `Link.send`."""
        return self._sender.send(frames) if frames >= BATCH else 0  # fewer would cost as many calls

    def arrived(self) -> int:
        """Return the arrivals; see `Link.arrived`."""
        self._counters.seek(0)
        line = self._counters.read().partition(INTERFACE.encode() + b":")[2]
        return int(line.split(maxsplit=2)[1])

    def close(self) -> None:
        """Close the sockets."""
        self._socket.close()
        self._counters.close()


class Superframes:
    """Datagrams of a UDP socket that are sent, and received, sixty at a time."""

    def __init__(self, on: Bed) -> None:
        udp = partial(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        self._socket = inside(on.namespaces["a"], udp)
        self._socket.connect((ip("b"), _PORT))
        self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, PAYLOAD)
        self._far = inside(on.namespaces["b"], udp)
        self._far.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._far.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        self._far.bind((ip("b"), _PORT))
        self._far.settimeout(0.1)
        self._payload = bytes(PAYLOAD * SUPERFRAME)
        self._bytes = 0
        self._closing = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, frames: int) -> int:
        """Send frames; see `Link.send`."""
        if frames < SUPERFRAME:
            return 0
        self._socket.send(self._payload)
        return SUPERFRAME

    def arrived(self) -> int:
        """Return the arrivals; see `Link.arrived`."""
        return self._bytes // PAYLOAD

    def close(self) -> None:
        """Close the sockets."""
        self._closing = True
        self._reader.join()
        self._socket.close()
        self._far.close()

    def _read(self) -> None:
        buffer = bytearray(1 << 16)
        while not self._closing:
            try:
                self._bytes += self._far.recv_into(buffer)
            except TimeoutError:
                continue


def _packet_socket() -> socket.socket:
    """Return a socket that sends frames and, with protocol 0, receives none."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.bind((INTERFACE, 0))
    return opened


def _interface_counters() -> FileIO:
    """Return a file of this namespace's counters that can be read anywhere."""
    return Path("/proc/thread-self/net/dev").open("rb", buffering=0)
