"""A worker's side of the meeting point: join its job, then listen for news of the other ranks."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostlib.addresses import parse_address
from hostlib.core import News, Peers
from hostlib.errors import RendezvousError
from hostlib.meet import (
    GONE,
    SILENT_S,
    TO_WORKER_BYTES,
    GroupAnswer,
    GroupRequest,
    Lines,
    MessageError,
    encode,
    parse_news,
    shut_down,
)
from hostlib.meet.connections import knock

FAREWELL_S = 1.0
"""Longest wait, in seconds, until the launcher has read a farewell. After that the launcher may reuse this
worker's resources."""
ANSWER_S = 5.0
"""Longest wait, in seconds, for the launcher to name the ranks that have not joined."""


class RendezvousPeers(Peers):
    """A worker's side of a `hostlib.meet.rendezvous.Rendezvous`."""

    def __init__(
        self, address: str, *, job: int, rank: int, size: int, token: str, timeout_s: float = 60.0
    ) -> None:
        """Join with the job's token, and wait until all ranks have joined.

        Raises:
            RendezvousError: this rank was refused, a rank died before it joined, or not all ranks have
                joined within `timeout_s`.
        """
        self._rank = rank
        self._size = size
        self._launcher = f"the launcher at {address.rpartition(':')[0]}"
        self._said_farewell = False
        self._lines = Lines(TO_WORKER_BYTES)
        self._sending = threading.Lock()
        self._change = threading.Condition()
        self._answers: dict[str, GroupAnswer] = {}
        where = f"job {job}, rank {rank}"
        deadline = time.monotonic() + timeout_s
        request = {"join": rank, "size": size, "job": job}
        try:
            self._socket, news = knock(parse_address(address), request, token, timeout_s)
        except RendezvousError as error:
            raise RendezvousError(f"{where}: refused: {error}") from error
        except (OSError, MessageError) as error:
            raise RendezvousError(f"{where}: cannot join at {address}: {error}") from error
        try:
            self._note(parse_news(news))
            self._await_go(where, deadline, timeout_s)
        except RendezvousError:
            self._socket.close()
            raise
        except (OSError, ValueError) as error:
            self._socket.close()
            raise RendezvousError(f"{where}: cannot join at {address}: {error}") from error
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._listen, name="peers", daemon=True)
        self._thread.start()

    def alive(self, ranks: Iterable[int]) -> bool:
        """Return whether all of `ranks` are known to be connected to the launcher."""
        return self.news.fault is None and self.news.ended().isdisjoint(ranks)

    def report(self, statistics: Mapping[str, float]) -> None:
        """Send statistics to the launcher."""
        self._send({"report": statistics})

    def farewell(self, collectives: int = 0) -> None:
        """Send a farewell to the launcher, which notifies the other ranks. No effect after the first call."""
        if not self._said_farewell:
            self._said_farewell = True
            self._send({"bye": collectives})

    def finished(self) -> bool:
        """Return whether every rank has sent a farewell or is gone, or the job has failed."""
        return self.news.fault is not None or len(self.news.ended()) == self._size

    def group(self, key: str, ranks: Sequence[int], timeout_s: float) -> str:
        """Ask the launcher to admit a job of these ranks; return this worker's configuration as JSON.

        Args:
            key: Text that is the same on these ranks and different for every other group.
            ranks: The ranks, in the order of their ranks in the group; all of them call this.
            timeout_s: Longest wait for the group's other ranks, and for the launcher.

        Raises RendezvousError with the reason if the group was not admitted; or, before anything is sent, for
        a wrong argument.
        """
        request = self._group_request(key, ranks)
        self._send({"group": request.key, "ranks": request.ranks})
        with self._change:
            self._change.wait_for(lambda: key in self._answers or self.news.fault is not None, timeout_s)
            answer = self._answers.pop(key, None)
        if answer is None:
            raise RendezvousError(self.news.fault or f"the launcher did not answer within {timeout_s:g} s")
        if answer.config is None:
            raise RendezvousError(answer.reason)
        return answer.config

    def _group_request(self, key: str, ranks: Sequence[int]) -> GroupRequest:
        """Return the request. Raises RendezvousError if it is invalid: the launcher would end the job."""
        try:
            request = GroupRequest.parse({"group": key, "ranks": [operator.index(rank) for rank in ranks]})
        except (MessageError, TypeError) as error:
            raise RendezvousError(f"a group of {ranks!r} with the key {key!r}: {error}") from None
        if len(request.ranks) > self._size:
            raise RendezvousError(f"a group of {len(request.ranks)} ranks: the job has {self._size}")
        return request

    def close(self) -> None:
        """Send a farewell, and close once the launcher has read it, or after `FAREWELL_S`."""
        self.farewell()
        with self._change:
            self._change.wait_for(
                lambda: self._rank in self.news.left or self.news.fault is not None, FAREWELL_S
            )
        shut_down(self._socket)
        self._thread.join()
        self._socket.close()

    def _await_go(self, where: str, deadline: float, timeout_s: float) -> None:
        waited = False
        while not self.news.go:
            if self.news.gone or self.news.fault:
                missing = ", ".join(f"{rank} ({why})" for rank, why in self.news.gone.items())
                raise RendezvousError(
                    f"{where}: " + (self.news.fault or f"missing ranks before the job began: {missing}")
                )
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                if waited:
                    raise RendezvousError(
                        f"{where}: not all of {self._size} ranks joined within {timeout_s:g} s, and the"
                        " launcher does not say which"
                    ) from None
                waited = True  # the launcher then names the missing ranks to all workers
                deadline = time.monotonic() + ANSWER_S
                self._socket.sendall(encode({"waited": timeout_s}))
                continue
            if not data:
                raise RendezvousError(f"{where}: {self._launcher} went away before all had joined")
            for news in map(parse_news, self._lines.feed(data)):
                self._note(news)

    def _listen(self) -> None:
        while True:
            try:
                data = self._socket.recv(65536)
                if not data:
                    break
                for message in self._lines.feed(data):
                    if "group" in message:
                        self._take_answer(GroupAnswer.parse(message))
                    else:
                        self._note(parse_news(message))
            except OSError as error:
                self._note_silence(error)
                break
            except ValueError as error:
                self._note(News(fault=f"the launcher sent an invalid message: {error}"))
                return
        with self._sending:
            self._note(News(fault=f"{self._launcher} went away"))

    def _send(self, message: Mapping[str, Any]) -> None:
        """Send a message, unless the launcher is gone: the listening thread then notices it, too."""
        with self._sending:
            try:
                self._socket.sendall(encode(message))
            except OSError as error:
                self._note_silence(error)

    def _note_silence(self, error: OSError) -> None:
        """Record that the launcher does not answer, if `error` says so.

        The kernel reports this once: the other thread then finds the end of the data.
        """
        if error.errno in GONE:
            self._note(News(fault=f"{self._launcher} has not answered for {SILENT_S} s"))

    def _take_answer(self, answer: GroupAnswer) -> None:
        with self._change:
            self._answers[answer.key] = answer
            self._change.notify_all()

    def _note(self, news: News) -> None:
        with self._change:
            self.news = self.news.and_then(news)
            self._change.notify_all()
