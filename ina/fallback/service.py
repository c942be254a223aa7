"""The fallback server as a service of its machine, for all processes that admit jobs.

Over TCP, or at a Unix socket. Lines of JSON (`hostlib.meet`). The service says a random challenge;
who connects compares the number of the protocol, and shows that it has the secret, which never travels. Then:

=====================================  ========================================================
``{"add": {...}}``                     serve a job, as ``ina fallback`` does on its input
``{"remove": id}``                     forget it
``{"only": [id, ...]}``                forget the other jobs of the same owner
``{"statistics": [id, ...]}``          answer ``{"statistics": {id: {...}, ...}, "ended": why}``;
                                       every `ASK_S`, to show that both ends live
=====================================  ========================================================

What a connection has added is removed when it ends, or is silent for `SILENCE_S`. What it has added for an
*owner*, which it names with its proof, stays: an owner that comes again is told which of its jobs are served.
Those of one that does not come for `OWNER_S` are forgotten once somebody else connects. The server itself is
a process (`FallbackProcess`), which is started again if it dies or hangs.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from hostlib.launch.sealed import proof
from hostlib.meet import Lines, MessageError, encode
from hostlib.version import version
from ina.errors import BadRun
from ina.fallback.process import Fallback, FallbackProcess

PROTOCOL: Final = 1
"""Number of these messages, the same at both ends: a controller may be upgraded while jobs run on."""
ASK_S: Final = 0.5
SILENCE_S: Final = 30.0
HELLO_S: Final = 10.0
OWNER_S: Final = 24 * 3600.0
MOST: Final = 256
"""Connections at a time."""
LINE_BYTES: Final = 1 << 20
BRACKETS: Final = 1 << 12
"""Objects and lists of a line: a tree has one for each of its switches."""
LEAST_SECRET: Final = 16

_log = logging.getLogger(__name__)


class FallbackService:
    """Listens, and serves one connection in each of its threads; a context manager that stops."""

    def __init__(
        self, fallback: FallbackProcess, address: tuple[str, int] | Path, secret: str | None, *, lanes: int
    ) -> None:
        """Listen.

        Args:
            fallback: the server.
            address: host and port, or path of a Unix socket, which only this user may open.
            secret: that clients prove to know; None: all may use it who can connect.
            lanes: values of a packet of the server.

        Raises BadRun for an address that cannot be listened at, or a short secret.
        """
        if secret is not None:
            check_secret(secret)
        self._fallback = fallback
        self._secret = secret
        self._hello = {"protocol": PROTOCOL, "version": version(), "lanes": lanes}
        self._room = threading.BoundedSemaphore(MOST)
        self._jobs: dict[int, tuple[int | str, Mapping[str, Any]]] = {}
        """The jobs that are served, with their owners: a connection, or who it named."""
        self._heard_s: dict[str, float] = {}
        """When owners were there last."""
        self._connections = 0
        self._lock = threading.Lock()
        try:
            self._listener = _listener(address)
        except OSError as error:
            where = str(address) if isinstance(address, Path) else "{}:{}".format(*address)
            raise BadRun(f"cannot listen there: {error.strerror}", setting="serve", value=where) from error
        threading.Thread(target=self._accept, name="fallback service", daemon=True).start()

    @property
    def address(self) -> str:
        """``host:port`` where it listens."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    @property
    def unused(self) -> bool:
        """Whether nobody is connected, and no job is served."""
        return not self._connections and not self._jobs

    def close(self) -> None:
        """Stop listening; the process ends the rest."""
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        for number in range(1 << 62):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            with self._lock:
                self._connections += 1
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            with connection, contextlib.suppress(OSError, MessageError):
                self._converse(connection, number)
        finally:
            with self._lock:
                left = self._forget(number)
                self._connections -= 1  # only now, for those who ask without the lock
            if left:
                _log.warning("job %s: whoever had it served is gone", ", ".join(map(str, left)))
            self._room.release()

    def _converse(self, connection: socket.socket, number: int) -> None:
        challenge = secrets.token_hex(16)
        connection.sendall(encode({**self._hello, "challenge": challenge}))
        messages = received(connection, HELLO_S)
        hello = next(messages)
        shown = str(hello.get("proof"))
        if self._secret is not None and not hmac.compare_digest(
            shown.encode(), proof(challenge, self._secret).encode()
        ):
            connection.sendall(encode({"refused": "its INA_TOKEN is another one"}))
            return
        owner = str(hello["owner"]) if hello.get("owner") else number
        with self._lock:
            for gone in [
                who for who, heard_s in self._heard_s.items() if time.monotonic() - heard_s > OWNER_S
            ]:
                del self._heard_s[gone]
                self._forget(gone)
            serves = [job for job, (of, _) in self._jobs.items() if of == owner]
        connection.sendall(encode({"welcome": True, "serves": serves}))
        for message in received(connection, SILENCE_S):
            if isinstance(owner, str):
                self._heard_s[owner] = time.monotonic()
            self._execute(message, connection, owner)

    def _forget(self, owner: int | str, keep: Collection[int] = ()) -> list[int]:
        """Forget the jobs of an owner, but these; return those forgotten."""
        left = [job for job, (of, _) in self._jobs.items() if of == owner and job not in keep]
        for job in left:
            del self._jobs[job]
            self._fallback.remove(job)
        return left

    def _execute(self, message: dict[str, Any], connection: socket.socket, owner: int | str) -> None:
        match message:
            case {"add": {"job": int(job)} as description}:
                with self._lock:
                    known = self._jobs.get(job)
                    if known == (owner, description):
                        return
                    if known is not None:  # of a connection that is lost, and has not ended here yet
                        self._fallback.remove(job)
                    self._jobs[job] = owner, description
                    self._fallback.add(job, description)
            case {"remove": int(job)}:
                with self._lock:
                    if job in self._jobs and self._jobs[job][0] == owner:
                        del self._jobs[job]
                        self._fallback.remove(job)
            case {"only": [*jobs]} if _are_ids(jobs):
                with self._lock:
                    self._forget(owner, jobs)
            case {"statistics": [*jobs]} if _are_ids(jobs):
                answer = {"statistics": self._fallback.counts(jobs), "ended": self._fallback.check()}
                connection.sendall(encode(answer))
            case _:
                raise MessageError(f"{json.dumps(message)[:100]} is no command")


def _are_ids(jobs: Sequence[object]) -> bool:
    return all(isinstance(job, int) for job in jobs)


@contextlib.contextmanager
def as_short(address: Path) -> Iterator[str]:
    """Yield a path of a Unix socket that fits into 107 bytes (unix(7)), however deep its folder is."""
    folder = os.open(address.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)


def _listener(address: tuple[str, int] | Path) -> socket.socket:
    if not isinstance(address, Path):
        return socket.create_server(address, backlog=MOST)
    listener = socket.socket(socket.AF_UNIX)
    address.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        with as_short(address) as path:
            listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(MOST)
    return listener


def check_secret(secret: str) -> None:
    """Raise BadRun for a secret that could be guessed."""
    if len(secret) < LEAST_SECRET:
        raise BadRun(
            f"INA_TOKEN has {len(secret)} characters: it must be a secret of {LEAST_SECRET} or more, the "
            "same on all machines (openssl rand -hex 32)"
        )


def received(connection: socket.socket, silence_s: float) -> Iterator[dict[str, Any]]:
    """Yield what the other end says, until it ends or is silent for so long. Raises OSError, MessageError."""
    lines = Lines(LINE_BYTES, brackets=BRACKETS)
    while True:
        connection.settimeout(silence_s)
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionAbortedError("the connection has ended")
        yield from lines.feed(data)


def wait_until_ended(fallback: Fallback, stopped: threading.Event) -> str | None:
    """See to the server until `stopped`, or it has ended for good; return why, or None."""
    while not stopped.wait(0.1):
        if why := fallback.check():
            return why
    return None
