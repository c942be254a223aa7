"""A connected UDP socket for many packets of one length in one call, where the kernel can.

The loops in C (``ina_socket.c``) use the same socket and buffers through `PacketSocket.io`.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib._native import IoStruct
from hostlib.io.held import OwnSocket

UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
SO_RCVBUFFORCE: Final = 33

SEGMENTS: Final = 64
"""Packets per call that every kernel with UDP_SEGMENT takes."""
DATAGRAM_BYTES: Final = 65507
"""Largest UDP payload: what they may have together."""
_RECEIVE_BYTES: Final = 65536
_NO_OFFLOAD: Final = (errno.EIO, errno.EINVAL, errno.EOPNOTSUPP)
"""What a device without segmentation offload answers."""


def open_socket(
    local: tuple[str, int],
    switch: tuple[str, int],
    receive_bytes: int,
    *,
    held: bool = False,
    own: bool = False,
) -> socket.socket:
    """Return a socket bound to `local`, connected to `switch`, with room for `receive_bytes` unread.

    With `held`, a `HeldAddress` keeps `local` for it; else, with `own`, it keeps its port from all others.

    Raises:
        OSError: the address is taken or not of this machine.
    """
    sock = OwnSocket()
    try:
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_bytes)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)  # at most net.core.rmem_max
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, receive_bytes)
        if held:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if own and not held:
            sock.take(local)
        else:
            sock.bind(local)
        sock.connect(switch)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


class PacketSocket:
    """The socket with its two buffers; `outgoing` is where packets to be sent are written."""

    def __init__(self, sock: socket.socket, send_bytes: int, send_packets: int) -> None:
        self.socket = sock
        self._peer = sock.getpeername()
        self.outgoing: NDArray[Any] = np.zeros(send_bytes, np.uint8)
        self._incoming = np.zeros(_RECEIVE_BYTES, np.uint8)
        self.io = IoStruct(
            send_buffer=self.outgoing.ctypes.data,
            receive_buffer=self._incoming.ctypes.data,
            send_packets=send_packets,
            receive_bytes=_RECEIVE_BYTES,
            fd=sock.fileno(),
            gso=_enable(sock, UDP_GRO, 1) and _enable(sock, UDP_SEGMENT, 0),
            peer_address=int.from_bytes(socket.inet_aton(self._peer[0]), sys.byteorder),
            peer_port=socket.htons(self._peer[1]),
        )

    def send(self, count: int, size: int) -> None:
        """Send the first `count` packets of `size` bytes, or lose what the socket does not take."""
        data = self.outgoing[: count * size]
        try:
            if self.io.gso and count > 1:
                segment = size.to_bytes(2, "little" if np.little_endian else "big")
                self.socket.sendmsg([data.data], [(socket.IPPROTO_UDP, UDP_SEGMENT, segment)])
                return
            for packet in data.reshape(count, size):
                self.socket.send(packet.data)
        except BlockingIOError:
            pass
        except OSError as error:
            if self.io.gso and error.errno in _NO_OFFLOAD:
                self.io.gso = 0
                self.send(count, size)
                return
            self._note(error)

    def receive(self) -> tuple[NDArray[Any], int, int] | None:
        """Return packets, the length of each (the last may be shorter), and when (ns); None: nothing there.

        What is returned is overwritten by the next call.
        """
        while True:
            try:
                size, ancillary, _, sender = self.socket.recvmsg_into(
                    [self._incoming.data], socket.CMSG_SPACE(4)
                )
            except BlockingIOError:
                return None
            except OSError as error:  # the report of an earlier send that nobody took
                self._note(error)
                return None
            if sender == self._peer:
                break
            self.io.strangers += 1  # it came before the socket was connected
        if not size:
            return None
        segment = size
        for level, kind, value in ancillary:
            if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
                segment = int.from_bytes(value, "little" if np.little_endian else "big")
        return self._incoming[:size], segment, time.monotonic_ns()

    @property
    def strangers(self) -> int:
        """How many datagrams did not come from the switch, and were dropped."""
        return int(self.io.strangers)

    def last_error(self) -> str | None:
        """Return what the socket complained of last, None if it never did."""
        return os.strerror(self.io.last_error) if self.io.last_error else None

    def close(self) -> None:
        """Free the socket."""
        self.socket.close()

    def _note(self, error: OSError) -> None:
        self.io.errors += 1
        self.io.last_error = error.errno or 0


def _enable(sock: socket.socket, option: int, value: int) -> bool:
    """Set a UDP option; False where the kernel has none of that name."""
    try:
        sock.setsockopt(socket.IPPROTO_UDP, option, value)
    except OSError:
        return False
    return True
