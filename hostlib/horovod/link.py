"""Send requests to rank 0, and announcements back, over connections of `hostlib.meet.connections`.

===============================  ================================================================
``{"request": fields}``          this rank submits a collective (`Request`)
``{"join": true}``               it has no more data
``{"remove": number}``           it has removed a process set
``{"leave": true, "why": why}``  it carries out no further collective; without ``why``: it has shut down
===============================  ================================================================

Threads fill `RankLink.announced`: at rank 0 one thread for each other rank, at other ranks one thread. The
connections are sockets, not gloo's messages: a thread that waits for a socket can be woken, so that no thread
is left when the interpreter ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from hostlib.horovod.negotiation import Announcement, Coordinator, Request
from hostlib.meet import Lines, MessageError, encode, shut_down
from hostlib.meet.connections import FirstRank, private_folder, reach

CONNECT_S: Final = 60.0
"""Longest wait, in seconds, for the other ranks' connections."""

_log = logging.getLogger("hostlib.horovod")
_LOOK_S: Final = 0.25
_LONGEST: Final = 1 << 30
"""Maximum number of bytes of a message: enough for any number of tensors."""


class RankLink:
    """This rank's end of the connections; any thread may call its methods."""

    def __init__(
        self,
        connections: Mapping[int, socket.socket],
        rank: int,
        size: int,
        *,
        stall_s: float,
        limit_s: float = 0.0,
    ) -> None:
        """Start to receive messages.

        Args:
            connections: Connections by rank: at rank 0 to each other rank, else to rank 0; see `connect`.
            rank: This rank.
            size: Number of ranks.
            stall_s: Time after which rank 0 warns if not all ranks have submitted a collective; 0: never.
            limit_s: Time after which such a collective ends the job; 0: never.
        """
        self._connections = connections
        self._rank = rank
        self._lock = threading.Lock()
        self._coordinator = Coordinator(size)
        self._stall_s, self._limit_s = stall_s, limit_s
        self._over = threading.Event()
        self.announced: queue.SimpleQueue[Announcement | None] = queue.SimpleQueue()
        """Received announcements, in order; None in the queue: no announcement follows."""
        self.lost = ""
        """Reason why the ranks can no longer agree on collectives; empty while they can."""
        self._threads = [
            threading.Thread(
                target=self._listen, args=(other, connection), name=f"horovod {other}", daemon=True
            )
            for other, connection in connections.items()
        ]
        if rank == 0:
            self._threads.append(threading.Thread(target=self._look, name="horovod stalls", daemon=True))
        for thread in self._threads:
            thread.start()

    def add_set(self, number: int, ranks: list[int]) -> None:
        """Register a process set at rank 0; without effect at other ranks."""
        if self._rank == 0:
            self._handle(0, {"set": number, "ranks": ranks})

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to rank 0; for the messages see the module."""
        if self._rank == 0:
            self._handle(0, message)
            return
        try:
            with self._lock:
                self._connections[0].sendall(encode(message))
        except OSError as error:
            self._end(f"rank 0 cannot be reached: {error}")

    def close(self, *, until_s: float) -> None:
        """Report to rank 0 that this rank leaves; disconnect once all have left, at the latest at `until_s`.

        `until_s` is a time of the monotonic clock, in seconds.
        """
        self.send({"leave": True})
        self._over.wait(max(0.0, until_s - time.monotonic()))
        self._end("")
        for connection in self._connections.values():
            shut_down(connection)
        for thread in self._threads:
            thread.join()
        for connection in self._connections.values():
            connection.close()

    def _listen(self, other: int, connection: socket.socket) -> None:
        """Receive another rank's messages until it leaves."""
        why = "has ended"
        try:
            for message in Lines(_LONGEST, brackets=_LONGEST).received(connection):
                if self._over.is_set() or "end" in message:
                    self._end(message.get("why", ""))
                    return
                if self._rank:
                    for each in message["announced"]:
                        self.announced.put(msgspec.convert(each, Announcement, str_keys=True))
                    continue
                self._handle(other, message)
                if "leave" in message:
                    return
        except MessageError as error:
            why = f"cannot be understood: {error}"
        if self._rank:
            self._end(f"rank 0 {why}")
        else:
            self._handle(other, {"leave": True, "why": why})

    def _handle(self, rank: int, message: dict[str, Any]) -> None:
        with self._lock:
            announced = self._take(rank, message)
            if announced:
                self._tell_all({"announced": [*map(asdict, announced)]})
            for each in announced:
                self.announced.put(each)
            everybody_left = self._coordinator.everybody_left
        if everybody_left:
            self._end_all("")

    def _take(self, rank: int, message: dict[str, Any]) -> list[Announcement]:
        if "request" in message:
            request = msgspec.convert(message["request"], Request)
            return self._coordinator.submit(rank, request, time.monotonic())
        if "set" in message:
            return self._coordinator.add_set(message["set"], message["ranks"])
        if "remove" in message:
            return self._coordinator.remove_set(rank, message["remove"])
        if "join" in message:
            return self._coordinator.join(rank)
        return self._coordinator.leave(rank, message.get("why", "has shut down"))

    def _look(self) -> None:
        """Rank 0: warn of collectives that wait for ranks; end the job if one waits too long."""
        while self._stall_s and not self._over.wait(min(_LOOK_S, self._stall_s / 4)):
            now = time.monotonic()
            with self._lock:
                warnings = self._coordinator.stalled(now, self._stall_s)
                overdue = self._coordinator.overdue(now, self._limit_s) if self._limit_s else ""
            for line in warnings:
                _log.warning("%s", line)
            if overdue:
                why = f"{overdue}; HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is {self._limit_s:g}"
                _log.error("%s", why)
                self._end_all(why)

    def _tell_all(self, message: dict[str, Any]) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):  # its listener notices it, too
                connection.sendall(encode(message))

    def _end_all(self, why: str) -> None:
        with self._lock:
            self._tell_all({"end": True, "why": why})
        self._end(why)

    def _end(self, why: str) -> None:
        if not self._over.is_set():
            self.lost = self.lost or why
            self._over.set()
            self.announced.put(None)


def connect(rank: int, size: int, *, host: str, share: Callable[[str], str]) -> dict[int, socket.socket]:
    """Return this rank's connections by rank: at rank 0 to each other rank, at other ranks to rank 0.

    Args:
        rank: This rank.
        size: Number of ranks.
        host: The address of rank 0's machine; "": all ranks are on it.
        share: Function that returns, at all ranks, rank 0's argument; each rank calls it once.

    Raises RendezvousError if connections cannot be made within `CONNECT_S`, or if protocol versions differ.
    """
    if rank:
        place, token = json.loads(share(""))
        at = Path(place) if isinstance(place, str) else (str(place[0]), int(place[1]))
        return {0: reach(at, rank, size, token, CONNECT_S)}
    token = secrets.token_hex(16)
    path = private_folder() / f"horovod-{token}"
    with FirstRank(("", 0) if host else path, range(1, size), size, token) as first:
        share(json.dumps([[host, int(first.address.rpartition(":")[2])] if host else str(path), token]))
        first.gather(CONNECT_S)
        return first.connections
