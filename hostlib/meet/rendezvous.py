"""Meeting point of a job's workers, over TCP on the management network; messages as in `hostlib.meet`.

A worker joins with its rank, the job's size and the job's id, and proves that it has the job's token, which
is in the job's configuration; when all have joined, all are released together. From then on each open
connection proves that its worker runs: when one closes without a farewell, the others learn at once which
rank is gone, instead of waiting for packets that never come.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hostlib.errors import RendezvousError, refuse
from hostlib.meet import (
    FROM_WORKER_BYTES,
    GONE,
    SILENT_S,
    Farewell,
    GroupRequest,
    Lines,
    MessageError,
    Report,
    Waited,
    encode,
    parse_from_member,
    shut_down,
)
from hostlib.meet.connections import STRANGER_S, Door

MOST_NAMED: Final = 8
"""Maximum number of ranks that a message names one by one."""

_SILENT: Final = f"its machine has not answered for {SILENT_S} s"


class Rendezvous(Door):
    """The meeting point of one job, run by the launcher of its workers; a context manager."""

    SECRET = "token in INA_JOB"

    def __init__(
        self,
        *,
        job: int,
        size: int,
        host: str = "127.0.0.1",
        join_s: float = STRANGER_S,
        machines: Mapping[int, str] | None = None,
    ) -> None:
        """Start to listen for connections.

        Args:
            job: Id of the job.
            size: Number of ranks of the job.
            host: Address to listen at.
            join_s: Seconds after which a connection is closed unless its worker has joined.
            machines: Known names of the ranks' machines, for messages.
        """
        self.token: Final = secrets.token_hex(32)
        """Secret that a worker needs to join; keep it out of command lines and logs."""
        self._job = job
        self._size = size
        self._machines = machines or {}
        self._joined: dict[int, socket.socket] = {}
        self._gone: dict[int, str] = {}
        self._left: dict[int, int] = {}
        self.broken: str | None = None
        """Reason why the job cannot go on; None while it can."""
        self._granted = 0
        self._reports: dict[int, Mapping[str, float]] = {}
        self._requests: dict[GroupRequest, set[int]] = {}
        """Requested groups, each with the ranks that have requested it so far."""
        self._on_group: Callable[[GroupRequest], object] | None = None
        self.complete = False
        """True once all ranks have joined."""
        super().__init__((host, 0), self.token, size, stranger_s=join_s)

    @property
    def finished(self) -> bool:
        """True once every rank has sent a farewell or is gone."""
        with self._change:
            return len({*self._left, *self._gone}) == self._size

    @property
    def leaving(self) -> bool:
        """True once a rank has sent a farewell or is gone."""
        with self._change:
            return bool(self._left or self._gone)

    @property
    def gone(self) -> dict[int, str]:
        """The ranks that are gone without a farewell, each with the reason."""
        with self._change:
            return dict(self._gone)

    def reports(self) -> dict[int, Mapping[str, float]]:
        """Return the latest report of each rank that has sent one."""
        with self._change:
            return dict(self._reports)

    def ended(self, rank: int, status: int, reason: str) -> None:
        """Record that the process of `rank` has ended.

        All workers are notified of a failure at once. After a success, the worker counts as gone only if its
        connection ends without a farewell: the farewell may still be unread.
        """
        with self._change:
            if status or rank not in self._joined:
                self._mark_gone(rank, reason)

    def fault(self, reason: str) -> None:
        """Notify all workers, present and later ones, that the job cannot go on.

        Only the first call has an effect.
        """
        with self._change:
            if self.broken is None:
                self.broken = reason
                self._broadcast({"fault": reason})

    def grant(self, packets: int) -> None:
        """Send all workers, present and later ones, the number of packets allowed in flight; 0: no limit."""
        with self._change:
            if packets != self._granted:
                self._granted = packets
                self._broadcast({"granted": packets})

    def on_group(self, call: Callable[[GroupRequest], object] | None) -> None:
        """Set the function to call once all ranks of a group have requested it; None: groups are refused.

        The function must return at once; any thread calls `answer` later.
        """
        with self._change:
            self._on_group = call

    def answer(self, request: GroupRequest, configs: Sequence[str] | str) -> None:
        """Answer the ranks of a group.

        `configs` has the configurations of these ranks, in the order of `request.ranks`; or it is the reason
        why the group is refused.
        """
        with self._change:
            for rank in self._requests.pop(request, set()) - {*self._gone}:
                answer = (
                    {"reason": configs}
                    if isinstance(configs, str)
                    else {"config": configs[request.ranks.index(rank)]}
                )
                self._send(rank, {"group": request.key, **answer})

    def close(self) -> None:
        """Stop serving and close every connection."""
        super().close()
        with self._change:
            for connection in self._joined.values():
                shut_down(connection)

    def _admit(self, request: Mapping[str, Any], connection: socket.socket) -> Mapping[str, Any]:
        rank, size, job = request.get("join"), request.get("size"), request.get("job")
        refuse(
            job != self._job,
            f"this is the meeting point of job {self._job}, not of job {job}",
            RendezvousError,
        )
        refuse(size != self._size, f"job {job} has {self._size} ranks, not {size}", RendezvousError)
        refuse(
            type(rank) is not int or not 0 <= rank < self._size,
            f"rank {rank} is not one of 0..{self._size - 1} of job {job}",
            RendezvousError,
        )
        refuse(rank in self._joined, f"rank {rank} of job {job} has joined already", RendezvousError)
        assert isinstance(rank, int)
        self._joined[rank] = connection
        news = {"gone": self._gone, "left": self._left, "fault": self.broken, "granted": self._granted}
        return {what: value for what, value in news.items() if value}

    def _serve(self, request: Mapping[str, Any], connection: socket.socket) -> None:
        rank, lines, why = request["join"], Lines(FROM_WORKER_BYTES), "its connection to the launcher closed"
        with self._change:
            if len(self._joined) == self._size and not self.complete:
                self.complete = True
                self._broadcast({"go": True})
        try:
            while data := connection.recv(65536):
                for message in lines.feed(data):
                    with self._change:
                        self._handle(rank, message)
        except MessageError as error:
            why = f"the launcher cannot understand it: {error}"
        except OSError as error:
            if error.errno in GONE:
                why = _SILENT
        finally:
            with self._change:
                self._mark_gone(rank, why)

    def _handle(self, rank: int, message: dict[str, Any]) -> None:
        match parse_from_member(message):
            case Report(numbers):
                self._reports[rank] = numbers
            case Farewell(collectives):
                self._left[rank] = collectives
                self._broadcast({"left": {str(rank): collectives}})
                self._refuse_groups_of(rank, "has left the job")
            case GroupRequest() as request:
                self._request(request, rank)
            case Waited(seconds) if not self.complete:
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

    def _request(self, request: GroupRequest, rank: int) -> None:
        """Record that `rank` requests a group.

        Once all ranks of the group have requested it, call the function that `on_group` has set.
        """
        requesting = self._requests.setdefault(request, set())
        requesting.add(rank)
        absent = [other for other in request.ranks if other in self._gone or other in self._left]
        if self._on_group is None:
            self.answer(request, "the launcher of this job admits no groups")
        elif len({*request.ranks}) < len(request.ranks) or not {rank, *request.ranks} <= {*self._joined}:
            self.answer(
                request, f"the group has ranks {list(request.ranks)}, must have ranks of the job, each once"
            )
        elif rank not in request.ranks:
            self.answer(request, f"rank {rank} is none of the ranks {list(request.ranks)}")
        elif absent:
            self.answer(request, f"rank {absent[0]} has ended")
        elif requesting == {*request.ranks}:
            self._on_group(request)

    def _refuse_groups_of(self, rank: int, why: str) -> None:
        """Refuse each incomplete request for a group with `rank`, which will not request the group any more.

        `why` is the reason, such as "has left the job".
        """
        for request, requesting in [*self._requests.items()]:
            if rank in request.ranks and requesting != {*request.ranks}:
                self.answer(request, f"rank {rank} {why}")

    def _mark_gone(self, rank: int, reason: str) -> None:
        """Notify all workers that `rank` is gone; only the first reason for a rank is sent."""
        if rank not in self._gone and rank not in self._left:
            self._gone[rank] = reason
            self._broadcast({"gone": {str(rank): reason}})
            self._refuse_groups_of(rank, f"is gone: {reason}")

    def _broadcast(self, message: Mapping[str, Any]) -> None:
        for rank in self._joined:
            self._send(rank, message)

    def _send(self, rank: int, message: Mapping[str, Any]) -> None:
        data, connection = encode(message), self._joined[rank]
        try:
            sent = connection.send(data, socket.MSG_DONTWAIT)
        except OSError as error:  # the worker is gone, or has not read for very long
            sent = 0
            if error.errno in GONE:  # the kernel reports this once; `_serve` then finds the end of the data
                self._mark_gone(rank, _SILENT)
        if sent < len(data):  # part of a message is worse than none; the receiving side drops it
            shut_down(connection)
