"""Who is at the other end of a connection: which user of this machine, and how many connections it has."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import resource
import socket
import sys
from collections import Counter
from pathlib import Path
from typing import Any

Place = tuple[str, int]
PER_PEER = 128
"""Most connections of a user of this machine, or of another machine."""
MOST = 1024
"""Most connections; half of the descriptors that this process may have, if that is less."""
RESERVED = 64
"""Those of them that are kept for root and the controller's own user."""
UNASKED = 32
"""Connections up to which it does not matter whose they are: to ask takes time."""


class Peer:
    """The other end of a connection: asked for once, not with each of its requests.

    Args:
        client: Its address; None: it has none.
        server: Ours; without a port that of a Unix socket, which lets only its owner and root in.
    """

    def __init__(self, client: Place | None, server: tuple[str, int | None] | None) -> None:
        self._client = client
        self._server = server
        self._uid: int | None = None

    def uid(self) -> int | None:
        """Return the user of this machine who has made the connection; None: not known."""
        if self._uid is None:
            if self._client is None or self._server is None or self._server[1] is None:
                self._uid = os.geteuid()
            else:
                self._uid = uid_of(self._client, (self._server[0], self._server[1]))
        return self._uid


class Listener(socket.socket):
    """A listening TCP socket that drops connections of a peer that has too many; it sends `refusal` there.

    Connections are counted before TLS and before any byte of a request, for these may never come.
    """

    refusal = b""

    def __init__(self, family: int) -> None:
        # asyncio turns Nagle's algorithm off where it knows that a socket is TCP's. With it the body of an
        # answer waits until the other side has acknowledged the header: 40 ms.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._taken: list[tuple[socket.socket, object]] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises ConnectionAbortedError for one too many."""
        connection, client = super().accept()
        self._taken = [each for each in self._taken if each[0].fileno() >= 0]
        if len(self._taken) < UNASKED:
            self._taken.append((connection, None))
            return connection, client
        uid = uid_of(client[:2], connection.getsockname()[:2])
        whose = client[0] if uid is None else uid
        most = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        own = uid in (0, os.geteuid())
        if len(self._taken) < (most if own else most - RESERVED):
            held = Counter(peer for _, peer in self._taken)[whose]
            if own or held < PER_PEER:
                self._taken.append((connection, whose))
                return connection, client
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            connection.send(self.refusal)
        raise ConnectionAbortedError


def uid_of(client: Place, server: Place, tables: Path = Path("/proc/net")) -> int | None:
    """Return the user of the socket from which `client` is connected to `server`; None: not known.

    The kernel lists all TCP sockets with their users (proc_pid_net(5)); both ends of a connection on loopback
    are on this machine, and so in the list. O(connections of the machine).
    """
    try:
        table = "tcp6" if ":" in client[0] else "tcp"
        wanted = [_written(client), _written(server)]
        with (tables / table).open(encoding="ascii") as file:
            for line in file:
                fields = line.split()
                if fields[1:3] == wanted:
                    return int(fields[7])
    except (OSError, ValueError, IndexError):
        return None
    return None


def _written(place: Place) -> str:
    """Return an address as that list has it: words in the machine's order.

    >>> _written(("127.0.0.1", 80)) if sys.byteorder == "little" else "0100007F:0050"
    '0100007F:0050'
    """
    packed = ipaddress.ip_address(place[0]).packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{place[1]:04X}"
