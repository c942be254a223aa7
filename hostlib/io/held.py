"""A host's UDP address, taken before its host starts and kept until the run ends."""

from __future__ import annotations

import socket
from array import array
from contextlib import suppress
from typing import Final

from hostlib.addresses import Address

_SO_MEMINFO: Final = 55
_SK_MEMINFO_DROPS: Final = 8
_MOST_READ: Final = 4096
"""Maximum number of datagrams to read per call: more than the socket can hold. So a call ends even if a
sender goes on sending."""


def take_everywhere(port: int = 0, *, shared: bool = False) -> socket.socket:
    """Return a socket that takes a UDP port at all addresses of this machine; `port` 0: a free port.

    A process with the port at one address (127.0.0.2, for example) can send from any other address, by
    IP_PKTINFO: so to take a single address is not enough. Sockets of this user with SO_REUSEPORT can still
    bind the port at their addresses; with `shared` this socket may be one of several such sockets.

    Raises:
        OSError: another socket has the port, at any address.
    """
    # Without IPv6 no other socket can have it either.
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # never read
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared and port != 0)
        taken.bind(("", port))
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        taken.close()
        raise
    return taken


class OwnSocket(socket.socket):
    """A UDP socket whose port no other socket has at any address, while it is open."""

    def __init__(self) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self._everywhere: socket.socket | None = None

    def take(self, local: Address) -> None:
        """Bind the socket. Raises OSError if another socket has the port, at any address."""
        host, port = local
        self._everywhere = take_everywhere(port)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.bind((host, self._everywhere.getsockname()[1]))
        for one in (self, self._everywhere):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)

    def close(self) -> None:
        """Close the socket, and release the port."""
        super().close()
        if self._everywhere:
            self._everywhere.close()


class HeldAddress:
    """Holds a UDP address for a host (a worker, a fallback server) until `close`.

    The host binds the address, too, with SO_REUSEPORT, which the kernel allows only to processes of the same
    user. So no other user can take the address before the host has started or after it has ended, or send
    from it (`take_everywhere`). The kernel delivers a datagram to the socket that is connected to its sender.
    The host's socket is connected to its switch: datagrams from other senders arrive here, and are counted.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take an address; port 0: a free port. Raises OSError if it is taken or not of this machine."""
        self._everywhere = take_everywhere(port, shared=True)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._switch: Address | None = None
        self._read = 0
        try:
            # For 2,700 small datagrams, or 550 where net.core.rmem_max is the kernel's default.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((host, self._everywhere.getsockname()[1]))
            self._socket.setblocking(False)
        except OSError:
            self.close()
            raise

    @property
    def address(self) -> Address:
        """The held address: host and port."""
        host, port = self._socket.getsockname()
        return host, port

    def expect(self, switch: Address) -> None:
        """Set the host's switch.

        Datagrams from the switch do not count as strangers', even before the host has started.
        """
        self._switch = switch

    def strangers(self) -> int:
        """Return the number of datagrams so far that senders other than the switch have sent.

        Call this at intervals: while this socket is full, the kernel drops datagrams, and every dropped
        datagram counts as one of a sender other than the switch.
        """
        with suppress(BlockingIOError):
            for _ in range(_MOST_READ):
                self._read += self._socket.recvfrom(1)[1] != self._switch
        memory = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64)
        return self._read + array("I", memory)[_SK_MEMINFO_DROPS]

    def close(self) -> None:
        """Release the address."""
        self._socket.close()
        self._everywhere.close()
