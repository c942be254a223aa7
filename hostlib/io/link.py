"""The loop that serves a window with a socket."""

from __future__ import annotations

import ctypes
import enum
import select
import socket
import time
from typing import Protocol

from hostlib._native import NativeKernel
from hostlib.core.window import Window
from hostlib.io.datagrams import DATAGRAM_BYTES, SEGMENTS, PacketSocket


class Pumped(enum.IntEnum):
    """Why a pump came back (``PUMP_*`` in ``ina_core.h``)."""

    DONE = 0
    TIMER = 1
    INTERRUPTED = 2
    DISAGREE = 3
    ERROR = 4
    ROUND = 5


class Link(Protocol):
    """Serves a window: sends what it emits, feeds it what arrives."""

    def pump(self, window: Window, deadline: int) -> Pumped:
        """Serve until the collective is complete, a time-out is due or `deadline` (monotonic ns) is past.

        After `Pumped.ROUND` the caller owes the window an `on_round`.
        """
        ...

    def serve(self, window: Window, deadline: int) -> None:
        """Answer reminders until `deadline`, or a signal comes; only while no collective is under way."""
        ...

    def readable(self) -> bool:
        """Return whether something has arrived."""
        ...

    @property
    def strangers(self) -> int:
        """How many datagrams did not come from the switch, and were dropped."""
        ...

    def last_error(self) -> str | None:
        """Return what the socket complained of last, None if it never did."""
        ...

    def close(self) -> None:
        """Free the socket."""
        ...


def receive_bytes_for(window: int, packet_bytes: int) -> int:
    """Return a receive buffer for a window of results and as many duplicates, with the kernel's overhead."""
    return max(1 << 20, 4 * window * packet_bytes)


class SocketLink:
    """`Link` over a socket; in C with the native kernel, else in Python."""

    def __init__(self, sock: socket.socket, window: Window) -> None:
        self._packet_bytes = window.state.packet_dtype.itemsize
        packets = min(SEGMENTS, DATAGRAM_BYTES // self._packet_bytes)
        self._socket = PacketSocket(sock, packets * self._packet_bytes, packets)
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)

    @property
    def room_packets(self) -> int:
        """How many results the socket holds unread; half of its memory is overhead."""
        return self._socket.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2 // self._packet_bytes

    def pump(self, window: Window, deadline: int) -> Pumped:
        """Serve until the collective is complete, a time-out is due, or `deadline` has passed."""
        if isinstance(window.kernel, NativeKernel):
            pump = window.kernel.library.ina_pump
            return Pumped(pump(ctypes.byref(window.state.struct), ctypes.byref(self._socket.io), deadline))
        return self._pump(window, deadline)

    def serve(self, window: Window, deadline: int) -> None:
        """Answer reminders until `deadline`, or a signal comes; only while no collective is under way."""
        if isinstance(window.kernel, NativeKernel):
            serve = window.kernel.library.ina_serve
            serve(ctypes.byref(window.state.struct), ctypes.byref(self._socket.io), deadline)
            return
        while (now := time.monotonic_ns()) < deadline:
            while self._receive_into(window):
                pass
            self._send_all(window, now)
            self._poller.poll((deadline - now) / 1e6)

    def readable(self) -> bool:
        """Return whether something has arrived."""
        return bool(self._poller.poll(0))

    @property
    def strangers(self) -> int:
        """How many datagrams did not come from the switch, and were dropped."""
        return self._socket.strangers

    def last_error(self) -> str | None:
        """Return what the socket complained of last, None if it never did."""
        return self._socket.last_error()

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()

    def _pump(self, window: Window, deadline: int) -> Pumped:
        while True:
            now = time.monotonic_ns()
            self._send_all(window, now)
            if window.ranks_disagree:
                return Pumped.DISAGREE
            if window.complete:
                return Pumped.DONE
            due = min(window.next_timeout(), deadline)
            if now >= due:
                return Pumped.TIMER
            if not self._receive_into(window):
                self._poller.poll(max(1, (due - now) // 1_000_000))

    def _send_all(self, window: Window, now: int) -> None:
        """Send, or lose what the socket does not take: the retransmission timer deals with it."""
        while count := window.emit(self._socket.outgoing, now):
            self._socket.send(count, self._packet_bytes)

    def _receive_into(self, window: Window) -> bool:
        received = self._socket.receive()
        if received is None:
            return False
        window.absorb(*received)
        return True
