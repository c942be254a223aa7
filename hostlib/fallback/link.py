"""The fallback server's socket, and the loop that serves a core with it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import Final

import numpy as np

from hostlib._native import IoStruct
from hostlib.config import TransportConfig, parse_address
from hostlib.errors import ConfigError, InaError
from hostlib.fallback.config import BATCH
from hostlib.fallback.core import FallbackCore
from hostlib.fallback.native_core import NativeCore
from hostlib.io.link import UDP_GRO, UDP_SEGMENT, Pumped, open_socket

RECEIVE_BUFFER_BYTES: Final = 32 << 20
"""What the socket is to hold unread: several jobs' windows may come at once. The kernel may grant less."""

_DATAGRAM_BYTES = 65507
_RECEIVE_BYTES = 65536
_BATCHES = 16


class FallbackLink:
    """A connected UDP socket towards the root switch's port; a context manager that closes it."""

    def __init__(self, transport: TransportConfig) -> None:
        """Open it: whole frames in datagrams (*loopback*), or an ordinary UDP socket (*udp*).

        Raises:
            ConfigError: the socket cannot be opened at those addresses.
        """
        local, switch = parse_address(transport.local), parse_address(transport.switch)
        try:
            self.socket = open_socket(local, switch, RECEIVE_BUFFER_BYTES)
        except OSError as error:
            raise ConfigError(
                f"cannot open {transport.local} towards {transport.switch}: {error.strerror}"
            ) from error
        self._gso = self._enable(UDP_GRO, 1) and self._enable(UDP_SEGMENT, 0)
        self._send = np.zeros(_DATAGRAM_BYTES, np.uint8)
        self._receive = np.zeros(_RECEIVE_BYTES, np.uint8)
        self._io = IoStruct(
            send_buffer=self._send.ctypes.data,
            receive_buffer=self._receive.ctypes.data,
            send_packets=BATCH,
            receive_bytes=_RECEIVE_BYTES,
            fd=self.socket.fileno(),
            gso=self._gso,
        )
        self._errors = 0

    def introduce(self) -> None:
        """Send an empty datagram: a switch's port learns from what comes whom to send to."""
        with contextlib.suppress(OSError):  # it is not there yet
            self.socket.send(b"")

    def pump(self, core: FallbackCore, control: int, deadline: int) -> None:
        """Serve until `deadline` (monotonic ns), a signal, or until `control` (-1: none) is readable.

        Raises:
            InaError: the socket cannot be waited for any more.
        """
        if isinstance(core, NativeCore):
            why = Pumped(core.pump(self._io, control, deadline))
            if why is Pumped.ERROR:
                raise InaError(f"the fallback server's socket failed: {os.strerror(self._io.last_error)}")
            return
        poller = select.poll()
        for descriptor in (self.socket.fileno(), control):
            if descriptor >= 0:
                poller.register(descriptor, select.POLLIN)
        while (now := time.monotonic_ns()) < deadline:
            self._send_all(core, now)
            if self._receive_into(core):
                continue
            wait = max(0, min(core.next_timeout(), deadline) - now)
            if any(descriptor == control for descriptor, _ in poller.poll(wait / 1e6)):
                return

    @property
    def errors(self) -> int:
        """How often sending or receiving failed."""
        return self._errors + int(self._io.errors)

    def close(self) -> None:
        """Free the socket."""
        self.socket.close()

    def _enable(self, option: int, value: int) -> bool:
        try:
            self.socket.setsockopt(socket.IPPROTO_UDP, option, value)
        except OSError:
            return False
        return True

    def _send_all(self, core: FallbackCore, now: int) -> None:
        """Send, or lose what the socket does not take: whoever needs it asks again."""
        while True:
            count, size = core.emit(self._send, now)
            if not count:
                return
            data = self._send[: count * size]
            try:
                if self._gso and count > 1:
                    segment = size.to_bytes(2, "little" if np.little_endian else "big")
                    self.socket.sendmsg([data.data], [(socket.IPPROTO_UDP, UDP_SEGMENT, segment)])
                    continue
                for packet in data.reshape(count, size):
                    self.socket.send(packet.data)
            except BlockingIOError:
                pass
            except OSError:
                self._errors += 1

    def _receive_into(self, core: FallbackCore) -> bool:
        for batch in range(_BATCHES):
            try:
                size, ancillary, _, _ = self.socket.recvmsg_into([self._receive.data], socket.CMSG_SPACE(4))
            except BlockingIOError:
                return batch > 0
            except OSError:  # the report of an earlier send that nobody took
                self._errors += 1
                continue
            segment = size
            for level, kind, value in ancillary:
                if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
                    segment = int.from_bytes(value, "little" if np.little_endian else "big")
            if size:
                core.absorb(self._receive[:size], segment, time.monotonic_ns())
        return True
