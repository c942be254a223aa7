"""The shared memory of one machine's ranks, and a Unix socket from the first of them to each other one.

The sockets carry short messages, whole each, and their end tells at once that a rank is gone. The memory has
no name: it comes through them. Their own name, in a folder of this user alone, is gone once all are there.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib.errors import RendezvousError

LOOK_S: Final = 0.25
"""Interval at which who waits looks up."""
_MESSAGE_BYTES: Final = 1 << 16
_JOIN_S: Final = 30.0
_RETRY_S: Final = 0.01

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

    def __init__(self, path: Path, others: Sequence[int], memory_bytes: int) -> None:
        """Make the memory, and wait for the other ranks. Raises RendezvousError if one does not come."""
        descriptor = os.memfd_create("ina-ranks")
        os.ftruncate(descriptor, memory_bytes)
        self.memory = _mapped(descriptor, memory_bytes)
        self._others: dict[int, socket.socket] = {}
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            path.unlink(missing_ok=True)
            listener.bind(str(path))
            listener.listen(len(others) or 1)
            self._accept(listener, set(others), descriptor)
        except BaseException:
            self.close()
            raise
        finally:
            path.unlink(missing_ok=True)
            listener.close()
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
                    messages[key.data] = _receive(self._others[key.data], key.data)
                    selector.unregister(key.fileobj)
                if not ready:
                    check()
        return messages

    def tell(self, message: Message) -> None:
        """Tell all other ranks; one that is gone shows in the next `collect`."""
        for connection in self._others.values():
            with contextlib.suppress(OSError):
                connection.send(json.dumps(message).encode())

    def close(self) -> None:
        """Leave."""
        for connection in self._others.values():
            connection.close()

    def _accept(self, listener: socket.socket, missing: set[int], descriptor: int) -> None:
        deadline = time.monotonic() + _JOIN_S
        while missing:
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                names = ", ".join(map(str, sorted(missing)))
                raise RendezvousError(
                    f"rank {names} of this machine is not there after {_JOIN_S:g} s"
                ) from None
            rank = int(connection.recv(_MESSAGE_BYTES) or -1)
            if rank not in missing:
                connection.close()
                continue
            missing.remove(rank)
            self._others[rank] = connection
            socket.send_fds(connection, [str(len(self.memory)).encode()], [descriptor])


class OtherEnd:
    """The end of another rank."""

    def __init__(self, path: Path, rank: int, first: int) -> None:
        """Connect to the `first` rank. Raises RendezvousError if it is not there."""
        self._first = first
        self._socket = _connected(path, rank, first)
        said, descriptors, _, _ = socket.recv_fds(self._socket, _MESSAGE_BYTES, 1)
        if not descriptors:
            raise RendezvousError(f"rank {first}, the first of this machine, has refused rank {rank}")
        self.memory = _mapped(descriptors[0], int(said))
        os.close(descriptors[0])

    def say(self, message: Message) -> None:
        """Tell the first rank. Raises RankGone."""
        try:
            self._socket.send(json.dumps(message).encode())
        except OSError:
            raise RankGone(self._first) from None

    def hear(self, check: Check) -> Message:
        """Wait for a message of the first rank. Raises RankGone."""
        self._socket.settimeout(LOOK_S)
        while True:
            try:
                return _receive(self._socket, self._first)
            except TimeoutError:
                check()

    def close(self) -> None:
        """Leave."""
        self._socket.close()


def _connected(path: Path, rank: int, first: int) -> socket.socket:
    deadline = time.monotonic() + _JOIN_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(str(path))
            connection.send(str(rank).encode())
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline:
                why = f"rank {first}, the first of this machine, cannot be reached: {error}"
                raise RendezvousError(why) from error
            time.sleep(_RETRY_S)
        else:
            return connection


def _receive(connection: socket.socket, rank: int) -> Message:
    try:
        text = connection.recv(_MESSAGE_BYTES)
    except ConnectionError:
        text = b""
    if not text:
        raise RankGone(rank)
    message: Message = json.loads(text)
    return message


def _mapped(descriptor: int, length: int) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(descriptor, length), np.uint8)
