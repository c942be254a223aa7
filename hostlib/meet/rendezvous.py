"""Meeting point of a job's workers: over TCP on the management network, in `hostlib.meet`.

A worker joins with its rank, the job's size, the job's id and the job's token, which only those know who were
given the job's configuration; when all have joined, all are let go together. From then on each open
connection is the proof that its worker runs: when one closes without a farewell, the others hear at once
which rank is gone, instead of waiting for packets that never come.

A client without the token learns nothing and delays nobody: no call here waits for a single connection.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from hostlib.meet import (
    FROM_WORKER_BYTES,
    GONE,
    SILENT_S,
    Farewell,
    GroupRequest,
    Join,
    Lines,
    MessageError,
    Report,
    Waited,
    encode,
    notice_its_end,
    other_protocol,
    parse_from_member,
)

JOIN_S: Final = 10.0
"""Longest time for which a connection stays open without having joined."""
MAX_STRANGERS: Final = 64
"""Connections that have not joined, beside one for each rank; beyond that the oldest gives way."""

MOST_NAMED: Final = 8
"""Ranks that a message names one by one."""

_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(slots=True)
class _Client:
    until: float
    """Time at which it is closed unless it has joined, monotonic seconds."""
    lines: Lines = field(default_factory=lambda: Lines(FROM_WORKER_BYTES))
    join: Join | None = None


class Rendezvous:
    """The meeting point of one job, run by the launcher of its workers; a context manager."""

    def __init__(
        self,
        *,
        job: int,
        size: int,
        host: str = "127.0.0.1",
        join_s: float = JOIN_S,
        machines: Mapping[int, str] | None = None,
    ) -> None:
        """Listen.

        Args:
            job: Id of the job.
            size: Number of its ranks.
            host: Address to listen at.
            join_s: Clients that have not joined so many seconds after connecting are cut off.
            machines: Names of the ranks' machines, as far as they are known, for messages.
        """
        self.token: Final = secrets.token_hex(32)
        """Secret that a worker needs to join; to be kept out of command lines and logs."""
        self._job = job
        self._size = size
        self._join_s = join_s
        self._machines = machines or {}
        self._listener = socket.create_server((host, 0), backlog=size + MAX_STRANGERS)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._lock = threading.RLock()
        """Held for all below; nothing done under it waits for a peer."""
        self._connections: dict[socket.socket, _Client] = {}
        self._strangers: dict[socket.socket, _Client] = {}
        """Those that have not joined, the oldest first."""
        self._joined: dict[int, socket.socket] = {}
        self._gone: dict[int, str] = {}
        self._left: dict[int, int] = {}
        self._fault: str | None = None
        self._granted = 0
        self._reports: dict[int, Mapping[str, float]] = {}
        self._requests: dict[GroupRequest, set[int]] = {}
        """Groups that are asked for, with the ranks that have asked so far."""
        self._on_group: Callable[[GroupRequest], None] | None = None
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
        """True once all ranks have joined."""
        return self._released

    @property
    def finished(self) -> bool:
        """True once every rank has said farewell or is gone."""
        with self._lock:
            return len({*self._left, *self._gone}) == self._size

    @property
    def leaving(self) -> bool:
        """True once a rank has said farewell or is gone."""
        with self._lock:
            return bool(self._left or self._gone)

    @property
    def gone(self) -> dict[int, str]:
        """The ranks that are gone without a farewell, each with the reason."""
        with self._lock:
            return dict(self._gone)

    def reports(self) -> dict[int, dict[str, float]]:
        """Return the latest report of each rank that has sent one."""
        with self._lock:
            return {rank: dict(report) for rank, report in self._reports.items()}

    def ended(self, rank: int, status: int, reason: str) -> None:
        """Note that the process of `rank` is no more.

        A failure is news at once. After success the connection decides: its farewell may still be unread.
        """
        with self._lock:
            if status or rank not in self._joined:
                self._mark_gone(rank, reason)

    def fault(self, reason: str) -> None:
        """Tell all workers, late ones too, that the job cannot go on; the first reason is kept."""
        with self._lock:
            if self._fault is None:
                self._fault = reason
                self._broadcast({"fault": reason})

    def grant(self, packets: int) -> None:
        """Tell all workers, late ones too, how many packets the job may have in flight; 0: no bound."""
        with self._lock:
            if packets != self._granted:
                self._granted = packets
                self._broadcast({"granted": packets})

    def on_group(self, call: Callable[[GroupRequest], None] | None) -> None:
        """Have `call` called with each group that all its ranks ask for; it returns at once.

        `answer` follows, from any thread. Without it groups are refused.
        """
        with self._lock:
            self._on_group = call

    def answer(self, request: GroupRequest, configs: Sequence[str] | str) -> None:
        """Tell the ranks of a group their configurations, in their order in it, or why there are none."""
        with self._lock:
            for rank in self._requests.pop(request, set()) - {*self._gone}:
                answer = (
                    {"reason": configs}
                    if isinstance(configs, str)
                    else {"config": configs[request.ranks.index(rank)]}
                )
                self._send(self._joined[rank], encode({"group": request.key, **answer}))

    @property
    def broken(self) -> str | None:
        """Why the job cannot go on; None while it can."""
        return self._fault

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
            for key, _ in self._selector.select(self._patience_s()):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._connections:
                        self._receive(key.fileobj)
            with self._lock:
                now = time.monotonic()
                for stranger in [peer for peer, known in self._strangers.items() if known.until <= now]:
                    self._forget(stranger)

    def _patience_s(self) -> float | None:
        oldest = next(iter(self._strangers.values()), None)
        return None if oldest is None else max(0.0, oldest.until - time.monotonic())

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._forget_oldest()
                time.sleep(0.01)  # if none of ours made room, others may: not at full speed
            return
        connection.setblocking(False)
        notice_its_end(connection)
        known = _Client(time.monotonic() + self._join_s)
        self._connections[connection] = self._strangers[connection] = known
        self._selector.register(connection, selectors.EVENT_READ)
        if len(self._strangers) > self._size + MAX_STRANGERS:
            self._forget_oldest()

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            if error.errno in GONE:
                self._drop(connection, f"its machine has not answered for {SILENT_S} s")
                return
        if not data:
            self._drop(connection, "its connection to the launcher closed")
            return
        try:
            for message in self._connections[connection].lines.feed(data):
                self._handle(connection, message)
                if connection not in self._connections:
                    return
        except MessageError as error:
            self._drop(connection, f"the launcher cannot understand it: {error}")

    def _handle(self, connection: socket.socket, message: dict[str, Any]) -> None:
        join = self._connections[connection].join
        if join is None:
            self._admit(connection, message)
            return
        match parse_from_member(message):
            case Report(numbers):
                self._reports[join.rank] = numbers
            case Farewell(collectives):
                self._left[join.rank] = collectives
                self._broadcast({"left": {str(join.rank): collectives}})
                self._refuse_groups_of(join.rank, "has left the job")
            case GroupRequest() as request:
                self._ask(request, join.rank)
            case Waited(seconds) if not self._released:
                self.fault(f"{self._absent()} did not join within {seconds:g} s")

    def _absent(self) -> str:
        """Name the ranks that have not joined, with their machines."""
        absent = [rank for rank in range(self._size) if rank not in self._joined]
        named = [
            f"{rank} on {self._machines[rank]}" if rank in self._machines else f"{rank}"
            for rank in absent[:MOST_NAMED]
        ]
        more = f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
        return f"rank{'s' if len(absent) > 1 else ''} {', '.join(named)}{more}"

    def _ask(self, request: GroupRequest, rank: int) -> None:
        """Note that a rank asks for a group; the last of its ranks to do so has it admitted."""
        asked = self._requests.setdefault(request, set())
        asked.add(rank)
        absent = [other for other in request.ranks if other in self._gone or other in self._left]
        if self._on_group is None:
            self.answer(request, "whoever started this job admits no groups")
        elif len({*request.ranks}) < len(request.ranks) or not {rank, *request.ranks} <= {*self._joined}:
            self.answer(
                request, f"the group has ranks {list(request.ranks)}, must have ranks of the job, each once"
            )
        elif rank not in request.ranks:
            self.answer(request, f"rank {rank} is none of the ranks {list(request.ranks)}")
        elif absent:
            self.answer(request, f"rank {absent[0]} has ended")
        elif asked == {*request.ranks}:
            self._on_group(request)

    def _refuse_groups_of(self, rank: int, why: str) -> None:
        """Refuse the groups that are not asked for by all their ranks, now that one never will."""
        for request, asked in [*self._requests.items()]:
            if rank in request.ranks and asked != {*request.ranks}:
                self.answer(request, f"rank {rank} {why}")

    def _admit(self, connection: socket.socket, message: dict[str, Any]) -> None:
        if not self._is_token(message.get("token")):
            self._forget(connection)
            return
        try:
            if not (reason := other_protocol(message)):
                join = Join.parse(message)
                reason = self._refusal(join)
        except MessageError as error:
            reason = str(error)
        if reason:
            self._send(connection, encode({"refused": reason}))
            self._forget(connection)
            return
        self._connections[connection].join = join
        del self._strangers[connection]
        self._joined[join.rank] = connection
        news = {"gone": self._gone, "left": self._left, "fault": self._fault, "granted": self._granted}
        if known := {what: told for what, told in news.items() if told}:
            self._send(connection, encode(known))
        if len(self._joined) == self._size:
            self._release()

    def _release(self) -> None:
        """Let all go: every rank has joined, once."""
        self._released = True
        self._broadcast({"go": True})

    def _is_token(self, given: object) -> bool:
        return isinstance(given, str) and hmac.compare_digest(
            given.encode(errors="replace"), self.token.encode()
        )

    def _refusal(self, join: Join) -> str:
        if join.job != self._job:
            return f"this is the meeting point of job {self._job}, not of job {join.job}"
        if join.size != self._size:
            return f"job {self._job} has {self._size} ranks, not {join.size}"
        if join.rank >= self._size:
            return f"rank {join.rank} is not one of 0..{self._size - 1} of job {self._job}"
        if join.rank in self._joined:
            return f"rank {join.rank} of job {self._job} has joined already"
        return ""

    def _mark_gone(self, rank: int, reason: str) -> None:
        """Tell all workers that `rank` died; the first reason given for a rank is kept."""
        if rank not in self._gone and rank not in self._left:
            self._gone[rank] = reason
            self._broadcast({"gone": {str(rank): reason}})
            self._refuse_groups_of(rank, f"is gone: {reason}")

    def _drop(self, connection: socket.socket, reason: str) -> None:
        join = self._connections[connection].join
        self._forget(connection)
        if join is not None:
            self._mark_gone(join.rank, reason)

    def _forget_oldest(self) -> None:
        if self._strangers:
            self._forget(next(iter(self._strangers)))

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._connections[connection]
        self._strangers.pop(connection, None)
        connection.close()

    def _broadcast(self, message: Mapping[str, Any]) -> None:
        for connection, known in self._connections.items():
            if known.join is not None:
                self._send(connection, encode(message))

    @staticmethod
    def _send(connection: socket.socket, data: bytes) -> None:
        try:
            sent = connection.send(data)
        except OSError:  # it is gone, or has not read for very long
            sent = 0
        if sent < len(data):  # part of a message is worse than none; the receiving side drops it
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
