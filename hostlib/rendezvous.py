"""Where the workers of a job meet: a line-based JSON protocol over TCP on the management network.

A worker joins with its rank, the job's size and the job's id; when all have joined, all are let go
together. From then on each open connection is the proof that its worker runs: when one closes without
a farewell, the others hear at once which rank is gone, instead of waiting for packets that never come.

===========  =======================================  ==================================
from worker  ``{"join": rank, "size": n, "job": id}``  once, first
             ``{"report": {name: number}}``            progress, any time
             ``{"bye": true}``                         it has all its results; an orderly close follows
to worker    ``{"refused": reason}``                   and the connection is closed
             ``{"go": true}``                          all ranks have joined
             ``{"gone": {rank: reason}}``              these ranks died
             ``{"left": [rank, …]}``                   these ranks said farewell
             ``{"fault": reason}``                     the job cannot go on
===========  =======================================  ==================================
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Self

from hostlib.config import parse_address

_MAX_LINE = 64 * 1024


class RendezvousError(Exception):
    """A worker could not join its job; says why."""


class _Lines:
    """Splits a byte stream into JSON messages."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages completed by `data`; raises ValueError on anything that is not one."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _MAX_LINE:
            raise ValueError("message too long")
        messages = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("a message must be a JSON object")
        return messages


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Rendezvous:
    """The meeting point of one job, run by whoever starts the workers; a context manager."""

    def __init__(self, *, job: int, size: int, host: str = "127.0.0.1") -> None:
        self._job = job
        self._size = size
        self._listener = socket.create_server((host, 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, tuple[_Lines, int | None]] = {}
        self._joined: dict[int, socket.socket] = {}
        self._gone: dict[int, str] = {}
        self._left: set[int] = set()
        self._reports: dict[int, dict[str, float]] = {}
        self._released = False
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="rendezvous", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """``host:port`` to give to the workers."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    @property
    def complete(self) -> bool:
        """Whether all ranks have joined."""
        return self._released

    def reports(self) -> dict[int, dict[str, float]]:
        """Return the latest report of each rank that has sent one."""
        with self._lock:
            return {rank: dict(report) for rank, report in self._reports.items()}

    def ended(self, rank: int, status: int, reason: str) -> None:
        """Note that the process of `rank` is no more.

        A failure is news at once. After success the connection decides: its farewell may still be unread.
        """
        if status or rank not in self._joined:
            self._mark_gone(rank, reason)

    def fault(self, reason: str) -> None:
        """Tell all workers that the job cannot go on."""
        with self._lock:
            self._broadcast({"fault": reason})

    def close(self) -> None:
        """Stop serving and close every connection."""
        self._closing = True
        self._wake_writer.send(b"x")
        self._thread.join()
        for connection in [*self._connections, self._listener, self._wake_reader, self._wake_writer]:
            connection.close()
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                connection = key.fileobj
                if connection is self._listener:
                    self._accept()
                elif connection is not self._wake_reader:
                    assert isinstance(connection, socket.socket)
                    self._receive(connection)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(1.0)  # a peer that reads nothing must not stop the others
        self._connections[connection] = (_Lines(), None)
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
            messages = self._connections[connection][0].feed(data)
        except (OSError, ValueError):
            data, messages = b"", []
        for message in messages:
            self._handle(connection, message)
        if not data:
            self._drop(connection, "its connection to the launcher closed")

    def _handle(self, connection: socket.socket, message: dict[str, Any]) -> None:
        if connection not in self._connections:
            return
        lines, rank = self._connections[connection]
        with self._lock:
            if rank is None:
                if reason := self._refusal(message):
                    self._send(connection, {"refused": reason})
                    self._forget(connection)
                    return
                rank = int(message["join"])
                self._connections[connection] = (lines, rank)
                self._joined[rank] = connection
                if self._gone:
                    self._send(connection, {"gone": {str(r): why for r, why in self._gone.items()}})
                if len(self._joined) == self._size:
                    self._released = True
                    self._broadcast({"go": True})
            elif isinstance(report := message.get("report"), dict):
                self._reports[rank] = report
            elif message.get("bye"):
                self._left.add(rank)
                self._broadcast({"left": sorted(self._left)})

    def _refusal(self, message: dict[str, Any]) -> str | None:
        rank, size, job = message.get("join"), message.get("size"), message.get("job")
        if job != self._job:
            return f"this is the meeting point of job {self._job}, not of job {job}"
        if size != self._size:
            return f"job {self._job} has {self._size} ranks, not {size}"
        if not isinstance(rank, int) or not 0 <= rank < self._size:
            return f"rank {rank} is not one of 0..{self._size - 1} of job {self._job}"
        if rank in self._joined:
            return f"rank {rank} of job {self._job} has joined already"
        return None

    def _mark_gone(self, rank: int, reason: str) -> None:
        """Tell all workers that `rank` died; the first reason given for a rank is kept."""
        with self._lock:
            if rank not in self._gone and rank not in self._left:
                self._gone[rank] = reason
                self._broadcast({"gone": {str(rank): reason}})

    def _drop(self, connection: socket.socket, reason: str) -> None:
        if connection not in self._connections:
            return
        rank = self._connections[connection][1]
        with self._lock:
            self._forget(connection)
        if rank is not None and not self._closing:
            self._mark_gone(rank, reason)

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._connections[connection]
        connection.close()

    def _broadcast(self, message: Mapping[str, Any]) -> None:
        for connection, (_, rank) in list(self._connections.items()):
            if rank is not None:
                self._send(connection, message)

    @staticmethod
    def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it is gone; its receive side will say so
            connection.sendall(_encode(message))


class RendezvousPeers:
    """A worker's side of a `Rendezvous`; implements `hostlib.peers.Peers`."""

    def __init__(self, address: str, *, job: int, rank: int, size: int, timeout_s: float = 60.0) -> None:
        """Join, and wait until all ranks have.

        Raises:
            RendezvousError: refused, a rank died before joining, or not all joined within `timeout_s`.
        """
        self._size = size
        self._said_farewell = False
        self._gone: dict[int, str] = {}
        self._left: set[int] = set()
        self._fault: str | None = None
        self._lines = _Lines()
        self._lock = threading.Lock()
        try:
            self._socket = socket.create_connection(parse_address(address), timeout=timeout_s)
        except OSError as error:
            raise RendezvousError(f"job {job}, rank {rank}: cannot join at {address}: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(_encode({"join": rank, "size": size, "job": job}))
            self._await_go(job, rank)
        except (OSError, ValueError, RendezvousError) as error:
            self._socket.close()
            match error:
                case RendezvousError():
                    raise
                case TimeoutError():
                    reason = f"not all of {size} ranks joined at {address} within {timeout_s:g} s"
                case _:
                    reason = f"cannot join at {address}: {error}"
            raise RendezvousError(f"job {job}, rank {rank}: {reason}") from error
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._listen, name="peers", daemon=True)
        self._thread.start()

    def gone(self) -> Mapping[int, str]:
        """Return the ranks that are known to be dead, each with the reason."""
        with self._lock:
            return dict(self._gone)

    def fault(self) -> str | None:
        """Return why the whole job cannot go on, or None."""
        return self._fault

    def alive(self, ranks: Iterable[int]) -> bool:
        """Return whether every one of `ranks` still holds its connection to the launcher."""
        with self._lock:
            return self._fault is None and self._left.union(self._gone).isdisjoint(ranks)

    def report(self, statistics: Mapping[str, float]) -> None:
        """Send progress to the launcher."""
        with contextlib.suppress(OSError):  # the listening thread notices that the launcher is gone
            self._socket.sendall(_encode({"report": statistics}))

    def farewell(self) -> None:
        """Tell the launcher, which tells the others. Without effect if done before."""
        if not self._said_farewell:
            self._said_farewell = True
            with contextlib.suppress(OSError):
                self._socket.sendall(_encode({"bye": True}))

    def finished(self) -> bool:
        """Return whether every rank has said farewell or is gone, or the job is over anyway."""
        with self._lock:
            return self._fault is not None or len(self._left.union(self._gone)) == self._size

    def close(self) -> None:
        """Say farewell and close."""
        self.farewell()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _await_go(self, job: int, rank: int) -> None:
        while True:
            data = self._socket.recv(65536)
            if not data:
                raise RendezvousError(f"job {job}, rank {rank}: the launcher went away before all had joined")
            messages = self._lines.feed(data)
            for message in messages:
                if reason := message.get("refused"):
                    raise RendezvousError(f"rank {rank} was refused: {reason}")
                self._note(message)
            if any(message.get("go") for message in messages):
                return  # what came along with it, a death even, has been noted
            if self._gone or self._fault:
                missing = ", ".join(f"{r} ({why})" for r, why in self._gone.items())
                raise RendezvousError(
                    f"job {job}, rank {rank}: "
                    + (self._fault or f"missing ranks before the job began: {missing}")
                )

    def _listen(self) -> None:
        while True:
            try:
                data = self._socket.recv(65536)
                messages = self._lines.feed(data)
            except (OSError, ValueError):
                return
            if not data:
                self._fault = self._fault or "the launcher went away"
                return
            for message in messages:
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._gone.update({int(rank): why for rank, why in message.get("gone", {}).items()})
            self._left.update(message.get("left", ()))
            self._fault = message.get("fault", self._fault)
