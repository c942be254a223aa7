"""A connected UDP socket with segmentation offload both ways, and the loop that serves a window with it."""

from __future__ import annotations

import ctypes
import enum
import os
import select
import socket
import time
from typing import Protocol

import numpy as np

from hostlib._native import IoStruct, NativeKernel
from hostlib.core.window import Window

UDP_SEGMENT = 103
UDP_GRO = 104
SO_RCVBUFFORCE = 33

_SEND_BYTES = 65507
"""Largest UDP payload: what one send with segmentation offload may carry."""
_SEND_PACKETS = 64
"""Segments per send that every kernel with UDP_SEGMENT takes."""
_RECEIVE_BYTES = 65536


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

    def last_error(self) -> str | None:
        """Return what the socket complained of last, None if it never did."""
        ...

    def close(self) -> None:
        """Free the socket."""
        ...


def open_socket(local: tuple[str, int], switch: tuple[str, int], receive_bytes: int) -> socket.socket:
    """Return a socket bound to `local`, connected to `switch`, with room for `receive_bytes` unread.

    Raises:
        OSError: the address is taken or not of this machine.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_bytes)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)  # at most net.core.rmem_max
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, receive_bytes)
        sock.bind(local)
        sock.connect(switch)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def receive_bytes_for(window: int, packet_bytes: int) -> int:
    """Return a receive buffer for a window of results and as many duplicates, with the kernel's overhead."""
    return max(1 << 20, 4 * window * packet_bytes)


class SocketLink:
    """`Link` over a socket; in C with the native kernel, else in Python."""

    def __init__(self, sock: socket.socket, window: Window) -> None:
        packet_bytes = window.state.packet_dtype.itemsize
        self._socket = sock
        self._packet_bytes = packet_bytes
        self._gso = _enable(sock, UDP_GRO, 1) and _enable(sock, UDP_SEGMENT, 0)
        self._send = np.zeros(packet_bytes * min(_SEND_PACKETS, _SEND_BYTES // packet_bytes), np.uint8)
        self._receive = np.zeros(_RECEIVE_BYTES, np.uint8)
        self._error: OSError | None = None
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)
        self._io = IoStruct(
            send_buffer=self._send.ctypes.data,
            receive_buffer=self._receive.ctypes.data,
            send_packets=len(self._send) // packet_bytes,
            receive_bytes=_RECEIVE_BYTES,
            fd=sock.fileno(),
            gso=self._gso,
        )

    @property
    def room_packets(self) -> int:
        """How many results the socket holds unread; half of its memory is overhead."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2 // self._packet_bytes

    def pump(self, window: Window, deadline: int) -> Pumped:
        """Serve until the collective is complete, a time-out is due, or `deadline` has passed."""
        if isinstance(window.kernel, NativeKernel):
            pump = window.kernel.library.ina_pump
            return Pumped(pump(ctypes.byref(window.state.struct), ctypes.byref(self._io), deadline))
        return self._pump(window, deadline)

    def serve(self, window: Window, deadline: int) -> None:
        """Answer reminders until `deadline`, or a signal comes; only while no collective is under way."""
        if isinstance(window.kernel, NativeKernel):
            serve = window.kernel.library.ina_serve
            serve(ctypes.byref(window.state.struct), ctypes.byref(self._io), deadline)
            return
        while (now := time.monotonic_ns()) < deadline:
            while self._receive_into(window):
                pass
            while count := window.emit(self._send, now):
                self._send_packets(count)
            self._poller.poll((deadline - now) / 1e6)

    def readable(self) -> bool:
        """Return whether something has arrived."""
        return bool(self._poller.poll(0))

    def last_error(self) -> str | None:
        """Return what the socket complained of last, None if it never did."""
        if self._error:
            return self._error.strerror
        return os.strerror(self._io.last_error) if self._io.last_error else None

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()

    def _pump(self, window: Window, deadline: int) -> Pumped:
        while True:
            now = time.monotonic_ns()
            while count := window.emit(self._send, now):
                self._send_packets(count)
            if window.ranks_disagree:
                return Pumped.DISAGREE
            if window.complete:
                return Pumped.DONE
            due = min(window.next_timeout(), deadline)
            if now >= due:
                return Pumped.TIMER
            if not self._receive_into(window):
                self._poller.poll(max(1, (due - now) // 1_000_000))

    def _send_packets(self, count: int) -> None:
        """Send, or lose what the socket does not take: the retransmission timer deals with it."""
        data = self._send[: count * self._packet_bytes]
        size = self._packet_bytes.to_bytes(2, "little" if np.little_endian else "big")
        try:
            if self._gso:
                self._socket.sendmsg([data.data], [(socket.IPPROTO_UDP, UDP_SEGMENT, size)])
                return
            for packet in data.reshape(count, self._packet_bytes):
                self._socket.send(packet.data)
        except BlockingIOError:
            pass
        except OSError as error:
            self._error = error

    def _receive_into(self, window: Window) -> bool:
        try:
            size, ancillary, _, _ = self._socket.recvmsg_into([self._receive.data], socket.CMSG_SPACE(4))
        except BlockingIOError:
            return False
        except OSError as error:  # the report of an earlier send that nobody took
            self._error = error
            return False
        segment = size
        for level, kind, value in ancillary:
            if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
                segment = int.from_bytes(value, "little" if np.little_endian else "big")
        if size:
            window.absorb(self._receive[:size], segment, time.monotonic_ns())
        return size > 0


def _enable(sock: socket.socket, option: int, value: int) -> bool:
    """Set a UDP option; False where the kernel has none of that name."""
    try:
        sock.setsockopt(socket.IPPROTO_UDP, option, value)
    except OSError:
        return False
    return True
