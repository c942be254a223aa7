"""Tells the processes of a group when it is their turn: lines of `hostlib.meet` over a Unix socket or TCP.

===============  ======================================================  ===================================
from a process   ``{"job": name, "rank": number, "protocol": number}``   once, first; over TCP with the
                                                                         server's ``"token"``
                 ``{"ask": stage}``                                      it stands before this stage
                 ``{"done": true}``                                      it has ended the stage
                 ``{"iterated": [seconds per stage], "total_s": …}``     it has ended an iteration
                 ``{"leave": failure}``                                  it ends; "": because all is done
to a process     ``{"welcome": true}``                                   it has joined
                 ``{"go": true}``                                        its turn has come
                 ``{"left": true}``                                      its farewell has been read
                 ``{"broken": reason}``                                  the group cannot go on
===============  ======================================================  ===================================

Once a process has joined, its open connection shows that it is alive. If one closes without a farewell, the
group is broken: all others hear which process is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from hostlib.interleave.member import VARIABLE
from hostlib.interleave.stages import KEPT, STAGES, GroupError, Iteration
from hostlib.interleave.turn_order import Member, TurnOrder
from hostlib.meet import FROM_WORKER_BYTES, Lines, encode, other_protocol

DIRECTORY_BYTES: Final = 100
"""Longest path of the socket's folder, bytes: an address of 107 bytes holds it and the socket's name."""
PATIENCE_S: Final = 600.0
"""Time that a group waits for one of its members, seconds; as long as a job waits for a straggler."""


class TurnServer:
    """Serves the turns of one group of jobs; a context manager, with a thread of its own."""

    def __init__(
        self,
        offsets: Mapping[str, int],
        ranks: Mapping[str, int],
        *,
        patience_s: float = PATIENCE_S,
        host: str | None = None,
    ) -> None:
        """Serve a group of jobs.

        Args:
            offsets: First stage of each job.
            ranks: Number of its processes.
            patience_s: Time that the group waits for one of its members.
            host: Address of this machine at which processes on other machines join; None: all are here.

        Raises GroupError as `TurnOrder` does, and OSError.
        """
        self._turns = TurnOrder(offsets, ranks)
        self._patience_s = patience_s
        self._writers: dict[Member, asyncio.StreamWriter] = {}
        self._measured: dict[Member, deque[Iteration]] = {
            member: deque(maxlen=KEPT) for member in self._turns.members
        }
        self._iterations = dict.fromkeys(self._turns.members, 0)
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()  # guards the measurements, which other threads read
        self._token = "" if host is None else secrets.token_hex(32)
        self._directory = _private_directory()
        self._path = Path(self._directory.name) / "socket"
        self._loop = asyncio.new_event_loop()
        try:
            self._server = self._loop.run_until_complete(
                asyncio.start_unix_server(self._serve, path=self._path)
                if host is None
                else asyncio.start_server(self._serve, host, 0)
            )
        except BaseException:
            self._loop.close()
            self._directory.cleanup()
            raise
        self._thread = threading.Thread(target=self._loop.run_forever, name="turn server", daemon=True)
        self._thread.start()

    def environment(self, job: str) -> dict[str, str]:
        """Return the environment variables with which the processes of `job` join: secret, with a token."""
        if not self._token:
            return {VARIABLE: json.dumps({"socket": str(self._path), "job": job})}
        address = self._server.sockets[0].getsockname()[:2]
        return {VARIABLE: json.dumps({"address": address, "token": self._token, "job": job})}

    @property
    def broken(self) -> str | None:
        """The reason why the group cannot go on, with job and rank; None: it can."""
        return self._turns.broken

    @property
    def culprit(self) -> str | None:
        """The job that broke the group, if it is broken."""
        return self._turns.culprit.job if self._turns.culprit else None

    def iterations(self, job: str) -> int:
        """Return the number of iterations that the slowest rank of `job` has done."""
        with self._lock:
            return min(number for member, number in self._iterations.items() if member.job == job)

    def measured(self, job: str) -> list[list[Iteration]]:
        """Return the latest iterations of each rank of `job`, oldest first."""
        with self._lock:
            return [list(times) for member, times in sorted(self._measured.items()) if member.job == job]

    def processes(self, job: str) -> list[int]:
        """Return the numbers of the processes of `job` that have joined and not ended, by rank.

        They are on this machine: not for a server with a `host`.
        """
        found = asyncio.run_coroutine_threadsafe(self._processes(job), self._loop).result()
        return [number for _, number in sorted(found.items())]

    def ended(self, job: str, reason: str) -> None:
        """Note that the processes of `job` have ended. One that never joined breaks the group."""
        self._loop.call_soon_threadsafe(self._ended, job, reason)

    def close(self) -> None:
        """Stop serving; processes that still wait for a turn raise."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # All below runs in the server's thread.

    async def _processes(self, job: str) -> dict[Member, int]:
        return {member: _peer(writer) for member, writer in self._writers.items() if member.job == job}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        member = None
        try:
            lines = Lines(FROM_WORKER_BYTES)
            (first,) = lines.feed(await reader.readline())
            member = self._join(first, writer)
            self._send([member], {"welcome": True})
            self._tell_if_broken([member])
            while data := await reader.read(FROM_WORKER_BYTES):
                for message in lines.feed(data):
                    self._handle(member, message)
            self._lose(member, "its process ended, or closed the connection, without a farewell")
        except (GroupError, ValueError, KeyError, TypeError, OSError) as error:
            if member is not None:
                self._lose(member, f"{type(error).__name__}: {error}")
            else:
                _write(writer, {"broken": f"refused: {error}"})
        finally:
            del self._connections[task]
            if member is not None:
                self._writers.pop(member, None)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _join(self, message: Any, writer: asyncio.StreamWriter) -> Member:
        member = Member(str(message["job"]), int(message["rank"]))
        if not hmac.compare_digest(str(message.get("token", "")), self._token):
            raise GroupError("it does not have this group's token")
        if other := other_protocol(message):
            raise GroupError(other)
        if member not in self._turns.members:
            raise GroupError(f"{member} is not in this group")
        if member in self._writers:
            raise GroupError(f"{member} has joined already")
        self._writers[member] = writer
        return member

    def _handle(self, member: Member, message: dict[str, Any]) -> None:
        match message:
            case {"ask": stage} if stage in STAGES:
                self._send(self._turns.ask(member, stage), {"go": True})
            case {"done": True}:
                self._turns.done(member)
            case {"iterated": list(stages_s), "total_s": float(total_s)}:
                with self._lock:
                    self._measured[member].append(Iteration(tuple(map(float, stages_s)), total_s))
                    self._iterations[member] += 1
            case {"leave": ""}:
                self._send([member], {"left": True})
                self._send(self._turns.leave(member), {"go": True})
            case {"leave": str(failure)}:
                self._turns.lose(member, failure)
            case _:
                raise GroupError(f"an unknown message: {message}")
        self._tell_if_broken(self._writers)
        self._watch()

    def _lose(self, member: Member, reason: str) -> None:
        if not self._closing:
            self._turns.lose(member, reason)
            self._tell_if_broken(self._writers)

    def _ended(self, job: str, reason: str) -> None:
        for member in sorted(self._turns.members):
            # For one that has joined the connection decides: its farewell may still be unread.
            if member.job == job and member not in self._writers:
                self._lose(member, reason)

    def _watch(self) -> None:
        """Restart the time-out of the group: something has happened."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._patience_s, self._standstill)

    def _standstill(self) -> None:
        for member in self._turns.behind():
            self._lose(member, f"the others have waited {self._patience_s:g} s for it")

    def _tell_if_broken(self, members: Iterable[Member]) -> None:
        if self._turns.broken is not None:
            self._send(members, {"broken": self._turns.broken})

    def _send(self, members: Iterable[Member], message: Mapping[str, Any]) -> None:
        for member in members:
            if writer := self._writers.get(member):
                _write(writer, message)

    async def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._closing = True
        self._server.close()
        connections = dict(self._connections)
        for writer in connections.values():
            writer.close()
        await asyncio.gather(*connections)


def _write(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(encode(message))


def _private_directory() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that nobody else can enter, with a path short enough for a socket in it."""
    directory = tempfile.TemporaryDirectory(prefix="ina-group-")
    if len(os.fsencode(directory.name)) <= DIRECTORY_BYTES:
        return directory
    directory.cleanup()
    return tempfile.TemporaryDirectory(prefix="ina-group-", dir="/tmp")


def _peer(writer: asyncio.StreamWriter) -> int:
    """Return the number of the process at the other end of a Unix socket."""
    credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4)
    return int.from_bytes(credentials, sys.byteorder)
