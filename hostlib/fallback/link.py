"""The fallback server's socket, and the loop that serves a core with it."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from hostlib.addresses import parse_address
from hostlib.config import TransportConfig
from hostlib.errors import ConfigError, InaError
from hostlib.fallback.config import BATCH
from hostlib.fallback.native_core import NativeCore
from hostlib.io.datagrams import DATAGRAM_BYTES, PacketSocket, open_socket
from hostlib.io.link import Pumped

RECEIVE_BUFFER_BYTES: Final = 32 << 20
"""Receive buffer: several jobs' windows may come at once. The kernel may grant less."""


class FallbackLink:
    """A connected UDP socket towards the root switch's port."""

    def __init__(self, transport: TransportConfig) -> None:
        """Open it: whole frames in datagrams (*loopback*), or an ordinary UDP socket (*udp*).

        Raises:
            ConfigError: the socket cannot be opened at those addresses.
        """
        local, switch = parse_address(transport.local), parse_address(transport.switch)
        try:
            self._to_a_port = transport.kind == "loopback"
            sock = open_socket(local, switch, RECEIVE_BUFFER_BYTES, held=transport.held, own=self._to_a_port)
        except OSError as error:
            raise ConfigError(
                f"cannot open {transport.local} towards {transport.switch}: {error.strerror}"
            ) from error
        self._packets = PacketSocket(sock, DATAGRAM_BYTES, BATCH)

    @property
    def socket(self) -> socket.socket:
        """The socket itself."""
        return self._packets.socket

    def introduce(self) -> None:
        """Send an empty datagram: a switch's port that was told no peer takes the first sender.

        Not over a network, where the switch would count it as a truncated packet of no job.
        """
        if not self._to_a_port:
            return
        with contextlib.suppress(OSError):  # it is not there yet
            self.socket.send(b"")

    def pump(self, core: NativeCore, control: int, deadline: int) -> None:
        """Serve until `deadline` (monotonic ns), a signal, or until `control` (-1: none) is readable.

        Raises:
            InaError: the socket cannot be waited for any more.
        """
        why = Pumped(core.pump(self._packets.io, control, deadline))
        if why is Pumped.ERROR:
            raise InaError(f"the fallback server's socket failed: {self._packets.last_error()}")

    @property
    def strangers(self) -> int:
        """Number of datagrams that did not come from the switch, and were dropped."""
        return self._packets.strangers

    @property
    def errors(self) -> int:
        """Number of failed calls to send or receive."""
        return int(self._packets.io.errors)

    def close(self) -> None:
        """Free the socket."""
        self._packets.close()
