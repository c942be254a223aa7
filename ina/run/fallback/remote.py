"""A fallback server that another process runs (`ina.run.fallback.service`), for the jobs of this process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hostlib.errors import RendezvousError
from hostlib.meet import MessageError, encode
from hostlib.meet.connections import knock
from ina.errors import ProcessFailed
from ina.run.fallback.service import ASK_S, HELLO_S, check_secret, received

PATIENCE_S: Final = 5.0
"""Seconds without an answer of the server after which `RemoteFallback.check` returns the server's silence as
the reason to end its jobs. Without this limit, their workers would time out later, without that reason."""
IDLE_S: Final = 20.0
"""Time after which an owner's connection to a server without jobs of the owner is closed, in seconds."""
_RETRY_S: Final = 0.2


class RemoteFallback:
    """A fallback server in another process (a `Fallback`); reconnects if the connection is lost.

    The server keeps the jobs of a named `owner` when the connection ends. `hold` passes the jobs that the
    owner has from then on; the server drops the owner's other jobs.
    """

    def __init__(
        self,
        machine: str,
        address: tuple[str, int] | Path,
        secret: str | None,
        *,
        lanes: int,
        owner: str = "",
    ) -> None:
        """Connect to the server.

        Args:
            machine: name of the server's machine, for messages.
            address: address of the server's `FallbackService`.
            secret: the service's secret; None: the service requires no secret.
            lanes: number of values in a packet; must be equal to the server's number.
            owner: name of the jobs' owner; "": the jobs belong to this connection.

        Raises:
            BadRun: the secret is too short.
            ProcessFailed: there is no server, or its version, lanes or secret differ.
        """
        if secret is not None:
            check_secret(secret)
        self._address = address
        self._secret = secret
        self._lanes = lanes
        self._owner = owner
        self._title = f"the fallback server on {machine}"
        advice = ""
        if not isinstance(address, Path):
            self._title += " ({}:{})".format(*address)
            advice = "; 'ina fallback --serve' starts one there"
        self._jobs: dict[int, Mapping[str, Any]] = {}
        self._statistics: dict[int, dict[str, float]] = {}
        self._pending: set[int] = set()
        """Jobs with a pending request for statistics."""
        self._change = threading.Condition()
        self.over = False
        """Whether the connection was closed for good, by `stop` or after `IDLE_S` without jobs."""
        self._needed_s = time.monotonic()
        self._hold_called = False
        """Whether `hold` was called; until then, the server keeps the owner's earlier jobs."""
        self._serves: list[int] = []
        self._final: str | None = None
        self._silent_s = 0.0
        self._why = "it is silent"
        try:
            self._connection = self._connect(HELLO_S)
        except (OSError, MessageError) as error:
            raise ProcessFailed(f"{self._title} does not answer: {error}{advice}") from error
        self.breaks = int(not self._serves)
        """Number of times that the server may have lost the owner's jobs. With none of an earlier process of
        the owner, it has lost these."""
        threading.Thread(target=self._listen, name="fallback", daemon=True).start()
        threading.Thread(target=self._ask, name="ask fallback", daemon=True).start()

    def hold(self, jobs: Mapping[int, Mapping[str, Any]]) -> None:
        """Make the server serve exactly these jobs of the owner; if there are new ones, wait until it does.

        A server that is silent stops serving the other jobs once it answers: nothing waits for that. Raises
        ProcessFailed if the server does not answer.
        """
        with self._change:
            added = [each for job, each in jobs.items() if self._jobs.get(job) != each]
            self._jobs, self._needed_s, self._hold_called = {**jobs}, time.monotonic(), True
            self._say_all(added)
            if added and not self._answers([*jobs][-1]):
                raise ProcessFailed(f"{self._title} does not answer")

    def check(self) -> str | None:
        """Return why the server is lost; None while it serves."""
        if self._silent_s > PATIENCE_S and self._jobs:
            return f"{self._title} has not answered for {self._silent_s:.0f} s: {self._why}"
        return self._final

    def statistics(self, job: int) -> dict[str, float]:
        """Ask the server for a job's counters, by name; empty if there is no answer in `PATIENCE_S`."""
        with self._change:
            return self._statistics.get(job, {}) if self._answers(job) else {}

    def stop(self) -> None:
        """Remove the jobs of this object from the server, and disconnect from it."""
        with self._change:
            self._jobs = {}
            self._say_all(())
            self.over = True
            with contextlib.suppress(OSError):  # a close might overtake earlier messages
                self._connection.shutdown(socket.SHUT_WR)

    def _answers(self, job: int) -> bool:
        """Ask for a job's statistics; return whether the server answers within `PATIENCE_S`.

        A server that answers has executed all earlier messages, too.
        """
        self._pending.add(job)
        self._say({"statistics": [job]})
        return self._change.wait_for(lambda: job not in self._pending, PATIENCE_S)

    def _say_all(self, added: Iterable[Mapping[str, Any]]) -> None:
        if self._hold_called:
            self._say({"only": [*self._jobs]})
        for each in added:
            self._say({"add": each})

    def _say(self, message: object) -> None:
        with contextlib.suppress(OSError):  # sent again once there is a connection
            self._connection.sendall(encode(message))  # type: ignore[arg-type]

    def _ask(self) -> None:
        while not self.over:
            with self._change:
                if self._jobs:
                    self._silent_s += ASK_S  # a pause of our own process adds nothing: no answer was received
                    self._say({"statistics": [*self._jobs]})
                else:
                    self._silent_s = 0.0
                    if self._owner and time.monotonic() - self._needed_s > IDLE_S:
                        self.stop()
            time.sleep(ASK_S)

    def _listen(self) -> None:
        while not self.over:
            try:
                for message in received(self._connection, PATIENCE_S + ASK_S):
                    self._take(message)
            except (OSError, MessageError) as error:
                self._why = str(error)
            self.breaks += bool(self._jobs)
            self._reconnect()
        self._connection.close()

    def _take(self, message: Mapping[str, Any]) -> None:
        if isinstance(found := message.get("statistics"), dict):
            with self._change:
                self._silent_s = 0.0
                self._final = message.get("ended")
                counts = {int(job): each for job, each in found.items()}
                self._statistics |= counts
                self._pending -= counts.keys()
                self._change.notify_all()

    def _reconnect(self) -> None:
        while not self.over:
            try:
                connection = self._connect(1.0)
            except (OSError, MessageError, ProcessFailed) as error:
                self._why = str(error)
                time.sleep(_RETRY_S)
                continue
            with self._change:
                self._connection.close()
                self._connection = connection
                if self.over:
                    connection.close()
                self._say_all(self._jobs.values())
            return

    def _connect(self, patience_s: float) -> socket.socket:
        """Connect, and check the secret and the lanes. Raises OSError, MessageError, ProcessFailed."""
        request = {"owner": self._owner}
        try:
            connection, hello = knock(self._address, request, self._secret or "", patience_s)
        except RendezvousError as error:
            raise ProcessFailed(f"{self._title} refuses this machine: {error}") from error
        if (lanes := hello.get("lanes")) != self._lanes:
            connection.close()
            raise ProcessFailed(f"{self._title} has {lanes} lanes: want {self._lanes}, as the switches have")
        self._serves = hello["serves"]
        return connection
