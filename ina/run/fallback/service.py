"""A fallback server that serves the jobs of other processes, on its own machine or on other machines.

Clients connect over TCP or a Unix socket, and prove that they know the secret (`hostlib.meet.connections`).
Then they send requests, lines of JSON:

=====================================  ========================================================
``{"add": {...}}``                     serve this job, described as on the input of ``ina fallback``
``{"remove": id}``                     stop serving this job
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controller.switches.layout import fallback_udp_port
from controller.vocabulary import Topology
from hostlib.meet import Lines, MessageError, encode
from hostlib.meet.connections import Door
from hostlib.version import version
from ina.errors import BadRun
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
            case {"remove": int(job)}:
                with self._change:
                    if job in self._jobs and self._jobs[job][0] == owner:
                        del self._jobs[job]
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
