"""A host's UDP address, taken before its host starts and kept until the run ends."""

from __future__ import annotations

import socket
from array import array
from typing import Final

from hostlib.addresses import Address

_SO_MEMINFO: Final = 55
_SK_MEMINFO_DROPS: Final = 8
_MOST_READ: Final = 4096
"""Per call: more than the socket holds, but not all that somebody may go on sending."""


def take_everywhere(port: int = 0, *, shared: bool = False) -> socket.socket:
    """Return a socket that keeps a UDP port from other users at all addresses of this machine; 0: a free one.

    Who has the port at one address (127.0.0.2, say) can send from it in the name of any other, by
    IP_PKTINFO: so to have a single address to oneself is not enough. Sockets of this user with SO_REUSEPORT
    can take the port at their addresses beside this one; with `shared` also if others of them have it.

    Raises:
        OSError: another socket has it, at any address.
    """
    # Without IPv6 nobody else has it either.
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # nobody reads it
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
        """Bind it. Raises OSError if another socket has the port, at any address."""
        host, port = local
        self._everywhere = take_everywhere(port)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.bind((host, self._everywhere.getsockname()[1]))
        for one in (self, self._everywhere):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)

    def close(self) -> None:
        """Close it, and let others have the port."""
        super().close()
        if self._everywhere:
            self._everywhere.close()


class HeldAddress:
    """Keeps a UDP address for a host (a worker, a fallback server), from now until `close`.

    The host binds it too, with SO_REUSEPORT, which the kernel allows to processes of the same user alone: so
    no other user can take it, neither before the host has started nor after it has ended, nor send in its
    name (`take_everywhere`). The kernel gives a datagram to the socket that is connected to its sender. The
    host's is, to its switch: what anybody else sends ends here, and is counted.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take it; port 0: a free one. Raises OSError if it is taken, or not of this machine."""
        self._everywhere = take_everywhere(port, shared=True)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._switch: Address | None = None
        self._read = 0
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((host, self._everywhere.getsockname()[1]))
            self._socket.setblocking(False)
        except OSError:
            self.close()
            raise

    @property
    def address(self) -> Address:
        """The address."""
        host, port = self._socket.getsockname()
        return host, port

    def expect(self, switch: Address) -> None:
        """Note the host's switch: what that sends while the host is not there is no stranger's."""
        self._switch = switch

    def strangers(self) -> int:
        """Return the number of datagrams that others have sent so far.

        To be called now and then: what the socket does not hold meanwhile counts as theirs.
        """
        for _ in range(_MOST_READ):
            try:
                _, sender = self._socket.recvfrom(1)
            except BlockingIOError:
                break
            self._read += sender != self._switch
        memory = array("I", self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64))
        return self._read + memory[_SK_MEMINFO_DROPS]

    def close(self) -> None:
        """Release it."""
        self._socket.close()
        self._everywhere.close()
