"""One frame, sent again and again in batches: as fast as a packet socket takes it."""

from __future__ import annotations

import ctypes
import os
import socket
from dataclasses import dataclass, field
from typing import Any

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
