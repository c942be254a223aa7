"""A host's UDP address, taken before its host starts and kept until the run ends."""

from __future__ import annotations

import socket
from array import array
from typing import Final

from hostlib.config import Address

_SO_MEMINFO: Final = 55
_SK_MEMINFO_DROPS: Final = 8
_MOST_READ: Final = 4096
"""Per call: more than the socket holds, but not all that somebody may go on sending."""


class HeldAddress:
    """Keeps a UDP address for a host (a worker, a fallback server), from now until `close`.

    The host binds it too, with SO_REUSEPORT, which the kernel allows to processes of the same user alone: so
    no other user can take it, neither before the host has started nor after it has ended. The kernel gives a
    datagram to the socket that is connected to its sender. The host's is, to its switch: what anybody else
    sends ends here, and is counted.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take it; port 0: a free one. Raises OSError if it is taken, or not of this machine."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._switch: Address | None = None
        self._read = 0
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((host, port))
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
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
        """Return how many datagrams came from others until now.

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
        """Let others have it."""
        self._socket.close()
