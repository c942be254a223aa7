"""Which user of this machine is at the other end of a connection on loopback."""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

Place = tuple[str, int]


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
