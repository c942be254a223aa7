"""The loop that serves a window with a socket."""

from __future__ import annotations

import ctypes
import enum
import select
import socket

from hostlib import _native
from hostlib._native.layout import require_constants
from hostlib.core.window import Window
from hostlib.io.datagrams import DATAGRAM_BYTES, SEGMENTS, PacketSocket


class Pumped(enum.IntEnum):
    """Reason for which a pump came back (``PUMP_*`` in ``ina_core.h``)."""

    DONE = 0
    TIMER = 1
    INTERRUPTED = 2
    DISAGREE = 3
    ERROR = 4
    ROUND = 5


def receive_bytes_for(window: int, packet_bytes: int) -> int:
    """Return a receive buffer for a window of results and as many duplicates, with the kernel's overhead."""
    return max(1 << 20, 4 * window * packet_bytes)


class SocketLink:
    """Serves a window: sends what it emits, feeds it what arrives; in C."""

    def __init__(self, sock: socket.socket, window: Window) -> None:
        self._packet_bytes = window.state.packet_dtype.itemsize
        packets = min(SEGMENTS, DATAGRAM_BYTES // self._packet_bytes)
        self._socket = PacketSocket(sock, packets * self._packet_bytes, packets)
        self._library = _native.load()
        require_constants(self._library, {f"PUMP_{each.name}": each.value for each in Pumped}, "PUMP_")
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)

    @property
    def room_packets(self) -> int:
        """Number of results that the socket holds unread; half of its memory is overhead."""
        return self._socket.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2 // self._packet_bytes

    def pump(self, window: Window, deadline: int) -> Pumped:
        """Serve until the collective is complete, a time-out is due or `deadline` (monotonic ns) is past.

        After `Pumped.ROUND` the caller owes the window an `on_round`.
        """
        struct, io = ctypes.byref(window.state.struct), ctypes.byref(self._socket.io)
        return Pumped(self._library.ina_pump(struct, io, deadline))

    def serve(self, window: Window, deadline: int) -> None:
        """Answer reminders until `deadline`, or a signal comes; only while no collective is under way."""
        struct, io = ctypes.byref(window.state.struct), ctypes.byref(self._socket.io)
        self._library.ina_serve(struct, io, deadline)

    def readable(self) -> bool:
        """Return whether something has arrived."""
        return bool(self._poller.poll(0))

    @property
    def strangers(self) -> int:
        """Number of datagrams that did not come from the switch, and were dropped."""
        return self._socket.strangers

    def last_error(self) -> str | None:
        """Return what the socket complained of last, None if it never did."""
        return self._socket.last_error()

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()
