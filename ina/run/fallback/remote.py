"""A fallback server that serves the jobs of other processes, on its own machine or on others, and its client.

Clients (`RemoteFallback`) connect over TCP or a Unix socket, and prove that they know the secret
(`hostlib.meet.connections`). Then they send requests, lines of JSON:

=====================================  ========================================================
``{"add": {...}}``                     serve this job, described as on the input of ``ina fallback``
``{"only": [id, ...]}``                stop serving the jobs of the client's owner, except these
``{"statistics": [id, ...]}``          answer ``{"statistics": {id: {...}, ...}, "ended": why}``;
                                       sent every `ASK_S`, to show that both ends live
=====================================  ========================================================

The jobs that a connection has added are removed when the connection ends, or is silent for `SILENCE_S`. A
client may name an *owner* when it connects: the owner's jobs stay, and at the next connection of this owner
the client gets the list of the owner's jobs. If an owner has had no connection for `OWNER_S`, its jobs
are removed when another client connects. The server itself is a process (`FallbackProcess`), which is
restarted if it dies or hangs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controller.switches.layout import fallback_udp_port
from controller.vocabulary import Topology
from hostlib.errors import RendezvousError
from hostlib.meet import Lines, MessageError, encode
from hostlib.meet.connections import Door, knock
from hostlib.version import version
from ina.errors import BadRun, ProcessFailed
from ina.run.fallback.process import FallbackProcess
from ina.run.launch.machine_hosts import switch_address

ASK_S: Final = 0.5
SILENCE_S: Final = 30.0
HELLO_S: Final = 10.0
OWNER_S: Final = 24 * 3600.0
MOST: Final = 256
"""Maximum number of simultaneous connections."""
LINE_BYTES: Final = 1 << 20
BRACKETS: Final = 1 << 12
"""Maximum number of JSON objects and lists in a line; a job's tree has one for each of its switches."""
LEAST_SECRET: Final = 16
PATIENCE_S: Final = 5.0
"""Seconds without an answer of the server after which `RemoteFallback.check` returns the server's silence as
the reason to end its jobs. Without this limit, their workers would time out later, without that reason."""
IDLE_S: Final = 20.0
"""Time after which an owner's connection to a server without jobs of the owner is closed, in seconds."""
_RETRY_S: Final = 0.2

_log = logging.getLogger(__name__)


class FallbackService(Door):
    """Listens for clients, and serves each in a thread of its own, until `close` is called."""

    def __init__(
        self, fallback: FallbackProcess, address: tuple[str, int] | Path, secret: str | None, *, lanes: int
    ) -> None:
        """Listen for clients.

        Args:
            fallback: the process that sums the packets.
            address: host and port, or path of a Unix socket, which only this user may open.
            secret: the secret that clients must prove to know; None: every client has access.
            lanes: number of values in the server's packets.

        Raises BadRun for an address that cannot be used for listening, or a short secret.
        """
        if secret is not None:
            check_secret(secret)
        self._fallback = fallback
        self._jobs: dict[int, tuple[int | str, Mapping[str, Any]]] = {}
        """The served jobs by id: the owner (a name, or the number of a connection) and the description."""
        self._heard_s: dict[str, float] = {}
        """Time of the last message from each named owner, in seconds of the monotonic clock."""
        before = os.umask(0o177)
        try:
            super().__init__(address, secret or "", MOST, {"version": version(), "lanes": lanes})
        except OSError as error:
            where = str(address) if isinstance(address, Path) else "{}:{}".format(*address)
            raise BadRun(f"cannot listen there: {error.strerror}", setting="serve", value=where) from error
        finally:
            os.umask(before)

    @property
    def unused(self) -> bool:
        """Whether there is no connection and no served job."""
        return not self._open and not self._jobs

    def _admit(self, request: Mapping[str, Any], connection: socket.socket) -> Mapping[str, Any]:
        for gone in [who for who, heard_s in self._heard_s.items() if time.monotonic() - heard_s > OWNER_S]:
            del self._heard_s[gone]
            self._forget(gone)
        return {"serves": [job for job, (of, _) in self._jobs.items() if of == request.get("owner")]}

    def _serve(self, request: Mapping[str, Any], connection: socket.socket) -> None:
        number = connection.fileno()
        owner = str(request["owner"]) if request.get("owner") else number
        try:
            for message in received(connection, SILENCE_S):
                if isinstance(owner, str):
                    self._heard_s[owner] = time.monotonic()
                self._execute(message, connection, owner)
        finally:
            with self._change:
                left = self._forget(number)
            if left:
                _log.warning(
                    "job %s is no longer served: the connection of its owner has ended",
                    ", ".join(map(str, left)),
                )

    def _forget(self, owner: int | str, keep: Collection[int] = ()) -> list[int]:
        """Stop serving the jobs of an owner, except `keep`; return the ids of the jobs that are removed."""
        left = [job for job, (of, _) in self._jobs.items() if of == owner and job not in keep]
        for job in left:
            del self._jobs[job]
        self._hold()
        return left

    def _hold(self) -> None:
        self._fallback.hold({job: description for job, (_, description) in self._jobs.items()})

    def _execute(self, message: dict[str, Any], connection: socket.socket, owner: int | str) -> None:
        match message:
            case {"add": {"job": int(job)} as description}:
                with self._change:
                    self._jobs[job] = owner, description
                    self._hold()
            case {"only": [*jobs]} if _are_ids(jobs):
                with self._change:
                    self._forget(owner, jobs)
            case {"statistics": [*jobs]} if _are_ids(jobs):
                answer = {"statistics": self._fallback.counts(jobs), "ended": self._fallback.check()}
                connection.sendall(encode(answer))
            case _:
                raise MessageError(f"{json.dumps(message)[:100]} is no command")


def _are_ids(jobs: Sequence[object]) -> bool:
    return all(isinstance(job, int) for job in jobs)


def check_secret(secret: str) -> None:
    """Raise BadRun for a secret that is so short that it could be guessed."""
    if len(secret) < LEAST_SECRET:
        raise BadRun(
            f"INA_TOKEN has {len(secret)} characters: it must be a secret of {LEAST_SECRET} or more, the "
            "same on all machines (openssl rand -hex 32)"
        )


def received(connection: socket.socket, silence_s: float) -> Iterator[dict[str, Any]]:
    """Yield the peer's messages.

    Raises OSError when the connection ends or is silent for `silence_s`; MessageError for invalid JSON.
    """
    lines = Lines(LINE_BYTES, brackets=BRACKETS)
    while True:
        connection.settimeout(silence_s)
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionAbortedError("the connection has ended")
        yield from lines.feed(data)


@contextlib.contextmanager
def serving(
    topology: Topology,
    server: str,
    address: tuple[str, int] | Path,
    secret: str | None,
    *,
    lanes: int,
    options: Sequence[str] = (),
) -> Iterator[tuple[FallbackProcess, FallbackService, threading.Event]]:
    """Run a fallback server and its service on this machine inside the context.

    Call it in the main thread, which alone can handle signals.

    Args:
        topology: The switches and servers, with their addresses.
        server: The name of this machine in the topology.
        address: Where the service listens; see `FallbackService`.
        secret: The secret that clients must prove to know; None: every client has access.
        lanes: Number of values in a packet.
        options: Further options of ``ina fallback``.

    Yields the server, its service, and an event that SIGTERM and SIGINT set. Raises BadRun, ProcessFailed.
    """
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    local = f"{topology.ip(server)}:{fallback_udp_port(topology, server)}"
    line = ["--transport", "udp", "--switch", switch_address(topology), "--local", local]
    line += ["--lanes", str(lanes), *options]
    line += ["--beside-workers"] if topology.server[server].serves_beside_workers else []
    process = FallbackProcess(line)
    try:
        with FallbackService(process, address, secret, lanes=lanes) as service:
            yield process, service, stopped
    finally:
        process.stop()


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
