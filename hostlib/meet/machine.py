"""The shared memory of one machine's ranks, and a connection from the first of them to each other one.

The connections (`hostlib.meet.connections`) carry short messages, and their end tells at once that a rank is
gone. The memory has no name: it comes through them, first of all.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import selectors
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib.errors import RendezvousError
from hostlib.meet import Lines, encode
from hostlib.meet.connections import FirstRank, reach

LOOK_S: Final = 0.25
"""Interval at which who waits looks up."""
_LONGEST: Final = 1 << 20
"""Bytes of a message."""
_JOIN_S: Final = 30.0

Message = Mapping[str, Any]
Check = Callable[[], None]
"""Called every `LOOK_S` of a wait; raises to end it."""


class RankGone(Exception):
    """The connection to a rank of this machine has ended."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


class FirstEnd:
    """The end of a machine's first rank."""

    def __init__(self, path: Path, others: Sequence[int], size: int, secret: str, memory_bytes: int) -> None:
        """Make the memory, and wait for the other ranks.

        Args:
            path: Where they come.
            others: The machine's other ranks.
            size: Number of ranks of the job.
            secret: Of the job.
            memory_bytes: Of the memory.

        Raises MissingRanks.
        """
        self._lines = {rank: Lines(_LONGEST, brackets=_LONGEST) for rank in others}
        with contextlib.closing(FirstRank(path, others, size, secret)) as first:
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
            with contextlib.suppress(OSError):  # as in `tell`
                socket.send_fds(connection, [str(memory_bytes).encode()], [descriptor])
        os.close(descriptor)

    def collect(self, check: Check) -> dict[int, Message]:
        """Wait for a message of each other rank; return them by rank. Raises RankGone."""
        messages: dict[int, Message] = {}
        with selectors.DefaultSelector() as selector:
            for rank, connection in self._others.items():
                selector.register(connection, selectors.EVENT_READ, rank)
            while selector.get_map():
                ready = selector.select(LOOK_S)
                for key, _ in ready:
                    for message in _received(self._others[key.data], key.data, self._lines[key.data]):
                        messages[key.data] = message
                        selector.unregister(key.fileobj)
                if not ready:
                    check()
        return messages

    def tell(self, message: Message) -> None:
        """Tell all other ranks; one that is gone shows in the next `collect`."""
        for connection in self._others.values():
            with contextlib.suppress(OSError):
                connection.sendall(encode(message))

    def close(self) -> None:
        """Leave."""
        for connection in self._others.values():
            connection.close()


class OtherEnd:
    """The end of another rank."""

    def __init__(self, path: Path, rank: int, size: int, secret: str, first: int) -> None:
        """Connect to the `first` rank of the machine; the rest as in `FirstEnd`. Raises RendezvousError."""
        self._first = first
        self._lines = Lines(_LONGEST, brackets=_LONGEST)
        self._heard: list[Message] = []
        self._socket = reach(path, rank, size, secret, _JOIN_S, first=first)
        said, descriptors, _, _ = socket.recv_fds(self._socket, 32, 1)
        if not descriptors:
            raise RendezvousError(f"rank {rank}: rank {first}, the first of this machine, is gone")
        self.memory = _mapped(descriptors[0], int(said))
        os.close(descriptors[0])

    def say(self, message: Message) -> None:
        """Tell the first rank. Raises RankGone."""
        try:
            self._socket.sendall(encode(message))
        except OSError:
            raise RankGone(self._first) from None

    def hear(self, check: Check) -> Message:
        """Wait for a message of the first rank. Raises RankGone."""
        self._socket.settimeout(LOOK_S)
        while not self._heard:
            try:
                self._heard += _received(self._socket, self._first, self._lines)
            except TimeoutError:
                check()
        return self._heard.pop(0)

    def close(self) -> None:
        """Leave."""
        self._socket.close()


def _received(connection: socket.socket, rank: int, lines: Lines) -> list[dict[str, Any]]:
    """Return the messages that are whole. Raises RankGone."""
    try:
        data = connection.recv(_LONGEST)
    except ConnectionError:
        data = b""
    if not data:
        raise RankGone(rank)
    return lines.feed(data)


def _mapped(descriptor: int, length: int) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(descriptor, length), np.uint8)
