"""The shared memory of a machine's ranks, and a connection from the first of them to each other rank.

The connections (`hostlib.meet.connections`) carry the file descriptor of the memory, which has no name, and
later the reason why the first rank has given up. The end of a connection shows that a rank is gone.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib.errors import RendezvousError
from hostlib.meet import Lines, encode
from hostlib.meet.connections import FirstRank, reach

_LONGEST: Final = 1 << 20
"""Maximum number of bytes of a message."""
_JOIN_S: Final = 30.0

Message = Mapping[str, Any]


class RankGone(Exception):
    """The connection to a rank of this machine has ended."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


class FirstEnd:
    """At a machine's first rank: the shared memory, and connections to the machine's other ranks."""

    def __init__(self, path: Path, others: Sequence[int], size: int, secret: str, memory_bytes: int) -> None:
        """Create the memory, and wait for the other ranks.

        Args:
            path: Path of the socket where they connect.
            others: The machine's other ranks.
            size: Number of ranks of the job.
            secret: Secret of the job.
            memory_bytes: Size of the memory.

        Raises MissingRanks.
        """
        with FirstRank(path, others, size, secret) as first:
            self._others = first.connections
            try:
                first.gather(_JOIN_S)
            except BaseException:
                self.close()
                raise
        descriptor = os.memfd_create("ina-ranks")
        os.ftruncate(descriptor, memory_bytes)
        self.memory = _mapped(descriptor, memory_bytes)
        for connection in self._others.values():
            with contextlib.suppress(OSError):  # as in `give_up`
                socket.send_fds(connection, [str(memory_bytes).encode()], [descriptor])
        os.close(descriptor)

    def look(self) -> Message | None:
        """Raise RankGone if a connection has ended; return None, because no other rank sends a reason."""
        for rank, connection in self._others.items():
            _received(connection, rank)
        return None

    def give_up(self, message: Message) -> None:
        """Send the reason, `message`, to all other ranks that are still connected."""
        for connection in self._others.values():
            with contextlib.suppress(OSError):
                connection.sendall(encode(message))

    def close(self) -> None:
        """Close the connections."""
        for connection in self._others.values():
            connection.close()


class OtherEnd:
    """At a machine's other ranks: the shared memory, and a connection to the machine's first rank."""

    def __init__(self, path: Path, rank: int, size: int, secret: str, first: int) -> None:
        """Connect to the machine's `first` rank; for the other arguments see `FirstEnd`.

        Raises RendezvousError.
        """
        self._first = first
        self._lines = Lines(_LONGEST, brackets=_LONGEST)
        self._socket = reach(path, rank, size, secret, _JOIN_S, first=first)
        message, descriptors, _, _ = socket.recv_fds(self._socket, 32, 1)
        if not descriptors:
            raise RendezvousError(f"rank {rank}: rank {first}, the first rank of this machine, has ended")
        self.memory = _mapped(descriptors[0], int(message))
        os.close(descriptors[0])

    def look(self) -> Message | None:
        """Return the reason why the first rank has given up; None if it has not. Raises RankGone."""
        messages = self._lines.feed(_received(self._socket, self._first))
        return messages[0] if messages else None

    def give_up(self, message: Message) -> None:
        """Close the connection, and do not send `message`: the first rank informs the other ranks."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._socket.close()


def _received(connection: socket.socket, rank: int) -> bytes:
    """Return the received messages without waiting. Raises RankGone."""
    try:
        if data := connection.recv(_LONGEST, socket.MSG_DONTWAIT):
            return data
    except BlockingIOError:
        return b""
    except OSError:
        pass
    raise RankGone(rank)


def _mapped(descriptor: int, length: int) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(descriptor, length), np.uint8)
