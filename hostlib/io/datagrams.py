"""A connected UDP socket that moves many packets of one length in one call, if the kernel can.

The loops in C (``ina_socket.c``) use socket and buffers through `PacketSocket.io`.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import Final

import numpy as np

from hostlib._native import IoStruct
from hostlib.io.held import OwnSocket

UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
SO_RCVBUFFORCE: Final = 33

SEGMENTS: Final = 64
"""Maximum number of packets per call: every kernel with UDP_SEGMENT supports this."""
DATAGRAM_BYTES: Final = 65507
"""Largest UDP payload: the maximum number of bytes of all packets of a call."""
_RECEIVE_BYTES: Final = 65536


def open_socket(
    local: tuple[str, int],
    switch: tuple[str, int] | None,
    receive_bytes: int,
    *,
    held: bool = False,
    own: bool = False,
) -> socket.socket:
    """Return a UDP socket, connected to the switch.

    Args:
        local: Address to bind.
        switch: Address to connect to; None: do not connect.
        receive_bytes: Size of the receive buffer.
        held: Whether a `HeldAddress` keeps `local` for this socket.
        own: Whether to take the port of `local` at all addresses, unless `held`.

    Raises:
        OSError: the address is taken, or is not an address of this machine.
    """
    sock = OwnSocket()
    try:
        set_buffers(sock, receive_bytes)
        if held:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if own and not held:
            sock.take(local)
        else:
            sock.bind(local)
        if switch is not None:
            sock.connect(switch)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def set_buffers(sock: socket.socket, receive_bytes: int) -> None:
    """Set the size of a socket's buffers in bytes; the kernel may grant less."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_bytes)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)  # at most net.core.rmem_max
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, receive_bytes)


class Carrier:
    """Moves packets to and from a switch: the loops in C read and write them through `io`."""

    io: IoStruct

    def readable(self) -> bool:
        """Return whether packets have arrived."""
        raise NotImplementedError

    @property
    def strangers(self) -> int:
        """Number of packets that did not come from the switch, and were dropped."""
        return int(self.io.strangers)

    def last_error(self) -> str | None:
        """Return the last error as a text; None if there was none."""
        return os.strerror(self.io.last_error) if self.io.last_error else None

    def close(self) -> None:
        """Release the socket or the shared memory."""
        raise NotImplementedError


class PacketSocket(Carrier):
    """The socket with its two buffers."""

    def __init__(self, sock: socket.socket, send_bytes: int, send_packets: int) -> None:
        self.socket = sock
        self._outgoing = np.zeros(send_bytes, np.uint8)
        self._incoming = np.zeros(_RECEIVE_BYTES, np.uint8)
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)
        host, port = sock.getpeername()
        self.io = IoStruct(
            send_buffer=self._outgoing.ctypes.data,
            receive_buffer=self._incoming.ctypes.data,
            send_packets=send_packets,
            receive_bytes=_RECEIVE_BYTES,
            fd=sock.fileno(),
            gso=enable(sock, UDP_GRO, 1) and enable(sock, UDP_SEGMENT, 0),
            peer_address=int.from_bytes(socket.inet_aton(host), sys.byteorder),
            peer_port=socket.htons(port),
        )

    def room_packets(self, packet_bytes: int) -> int:
        """Return the number of results that fit in the receive buffer; half of its memory is overhead."""
        return self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2 // packet_bytes

    def readable(self) -> bool:
        """Return whether packets have arrived."""
        return bool(self._poller.poll(0))

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def enable(sock: socket.socket, option: int, value: int) -> bool:
    """Set a UDP option; return False if the kernel does not have it."""
    try:
        sock.setsockopt(socket.IPPROTO_UDP, option, value)
    except OSError:
        return False
    return True
