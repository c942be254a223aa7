"""Notify the processes of a group of their turns, over connections of `hostlib.meet.connections`.

===============  ======================================================  ===================================
from a process   ``{"job": name, "rank": number}``                       first, with its proof
                 ``{"ask": stage}``                                      it waits for this stage
                 ``{"done": true}``                                      it has ended the stage
                 ``{"iterated": [seconds per stage], "total_s": …}``     it has ended an iteration
                 ``{"leave": failure}``                                  it ends; "": all is done
to a process     ``{"go": true}``                                        its turn has come
                 ``{"left": true}``                                      its farewell has been read
                 ``{"broken": reason}``                                  the group cannot go on
===============  ======================================================  ===================================

Once a process has joined, its open connection shows that it is alive. If one closes without a farewell, the
group is broken, and all others learn which process is gone.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hostlib.errors import refuse
from hostlib.interleave.member import VARIABLE
from hostlib.interleave.stages import KEPT, STAGES, GroupError, Iteration
from hostlib.interleave.turn_order import Member, TurnOrder
from hostlib.meet import FROM_WORKER_BYTES, Lines, encode, shut_down
from hostlib.meet.connections import Door, private_folder

PATIENCE_S: Final = 600.0
"""Longest time, in seconds, that a group waits for one of its members; equal to the default time that a job
waits for a straggler (`hostlib.core.STRAGGLER_TIMEOUT_S`)."""


_LOOK_S: Final = 0.25


class TurnServer(Door):
    """Serves the turns of one group of jobs; a context manager, with threads of its own."""

    SECRET = VARIABLE

    def __init__(
        self,
        offsets: Mapping[str, int],
        ranks: Mapping[str, int],
        *,
        patience_s: float = PATIENCE_S,
        host: str | None = None,
    ) -> None:
        """Start to tell the jobs of a group, in turn, when to run their next stage.

        Args:
            offsets: By job, the number of the stage with which it starts.
            ranks: Number of processes of each job.
            patience_s: Longest wait of the group for one of its members, seconds.
            host: Address of this machine at which processes on other machines join; None: all processes are
                on this machine.

        Raises GroupError (see `TurnOrder`), and OSError.
        """
        self._turns = TurnOrder(offsets, ranks)
        self._patience_s = patience_s
        self._heard_s = math.inf
        """Time at which the last message of any member arrived, in seconds of the monotonic clock."""
        self._connections: dict[Member, socket.socket] = {}
        self._measured: dict[Member, deque[Iteration]] = {
            member: deque(maxlen=KEPT) for member in self._turns.members
        }
        self._iterations = dict.fromkeys(self._turns.members, 0)
        self._over = threading.Event()
        token = secrets.token_hex(32)
        place = private_folder() / f"group-{secrets.token_hex(16)}" if host is None else (host, 0)
        super().__init__(place, token, len(self._turns.members))
        where = {"socket": str(place)} if host is None else {"address": self.address}
        self._where = {**where, "token": token}
        threading.Thread(target=self._watch, name="turn server", daemon=True).start()

    def environment(self, job: str) -> dict[str, str]:
        """Return the environment variables with which the processes of `job` join; they hold a secret."""
        return {VARIABLE: json.dumps({**self._where, "job": job})}

    @property
    def broken(self) -> str | None:
        """Reason why the group cannot go on, with job and rank; None: the group can go on."""
        return self._turns.broken

    @property
    def culprit(self) -> str | None:
        """Job that broke the group; None: the group is not broken."""
        return self._turns.culprit.job if self._turns.culprit else None

    def iterations(self, job: str) -> int:
        """Return the number of iterations that the slowest rank of `job` has done."""
        with self._change:
            return min(number for member, number in self._iterations.items() if member.job == job)

    def measured(self, job: str) -> list[list[Iteration]]:
        """Return the latest iterations of each rank of `job`, oldest first."""
        with self._change:
            return [list(times) for member, times in sorted(self._measured.items()) if member.job == job]

    def processes(self, job: str) -> list[int]:
        """Return the process ids of `job`'s processes that have joined and not ended, by rank.

        Valid only without a `host`: the processes must be on this machine.
        """
        with self._change:
            found = sorted((member, its) for member, its in self._connections.items() if member.job == job)
        return [_peer(connection) for _, connection in found]

    def ended(self, job: str, reason: str) -> None:
        """Record that the processes of `job` have ended; a process that never joined breaks the group."""
        with self._change:
            for member in sorted(self._turns.members):
                # The connection of a joined process shows its end: its farewell may still be unread.
                if member.job == job and member not in self._connections:
                    self._lose(member, reason)

    def close(self) -> None:
        """Stop serving; processes that wait for a turn raise GroupBroken."""
        self._over.set()
        super().close()
        with self._change:
            for connection in self._connections.values():
                shut_down(connection)

    def _admit(self, request: Mapping[str, Any], connection: socket.socket) -> Mapping[str, Any]:
        member = _member(request)
        refuse(member not in self._turns.members, f"{member} is not in this group", GroupError)
        refuse(member in self._connections, f"{member} has joined already", GroupError)
        self._connections[member] = connection
        return {}

    def _serve(self, request: Mapping[str, Any], connection: socket.socket) -> None:
        member, why = _member(request), "its process ended, or closed the connection, without a farewell"
        try:
            with self._change:
                self._tell_if_broken([member])
            for message in Lines(FROM_WORKER_BYTES).received(connection):
                with self._change:
                    self._handle(member, message)
        except (GroupError, ValueError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"
        finally:
            with self._change:
                self._lose(member, why)
                del self._connections[member]

    def _handle(self, member: Member, message: dict[str, Any]) -> None:
        match message:
            case {"ask": stage} if stage in STAGES:
                self._send(self._turns.ask(member, stage), {"go": True})
            case {"done": True}:
                self._turns.done(member)
            case {"iterated": list(stages_s), "total_s": float(total_s)}:
                self._measured[member].append(Iteration(tuple(map(float, stages_s)), total_s))
                self._iterations[member] += 1
            case {"leave": ""}:
                self._send([member], {"left": True})
                self._send(self._turns.leave(member), {"go": True})
            case {"leave": str(failure)}:
                self._turns.lose(member, failure)
            case _:
                raise GroupError(f"an unknown message: {message}")
        self._tell_if_broken(self._connections)
        self._heard_s = time.monotonic()

    def _lose(self, member: Member, reason: str) -> None:
        if not self._over.is_set():
            self._turns.lose(member, reason)
            self._tell_if_broken(self._connections)

    def _watch(self) -> None:
        """Break the group when a member keeps the others waiting too long."""
        while not self._over.wait(min(_LOOK_S, self._patience_s / 4)):
            with self._change:
                if time.monotonic() - self._heard_s > self._patience_s:
                    for member in self._turns.behind():
                        self._lose(member, f"the others have waited {self._patience_s:g} s for it")

    def _tell_if_broken(self, members: Iterable[Member]) -> None:
        if self._turns.broken is not None:
            self._send(members, {"broken": self._turns.broken})

    def _send(self, members: Iterable[Member], message: Mapping[str, Any]) -> None:
        for member in members:
            if connection := self._connections.get(member):
                with contextlib.suppress(OSError):  # its thread ends, too
                    connection.sendall(encode(message))


def _member(request: Mapping[str, Any]) -> Member:
    job, rank = request.get("job"), request.get("rank")
    if not isinstance(job, str) or type(rank) is not int:
        raise GroupError(f"job {job!r} and rank {rank!r} must be a name and a number")
    return Member(job, rank)


def _peer(connection: socket.socket) -> int:
    """Return the id of the process at the other end of a Unix socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4)
    return int.from_bytes(credentials, sys.byteorder)
