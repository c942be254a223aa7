"""Run a fallback server as a process: a socket towards the root switch, commands as lines of JSON.

==========================  ====================================================================
``{"add": {...}}``          serve a job (`FallbackJob.from_json`); answer ``{"added": id}``
``{"remove": id}``          stop serving a job; answer ``{"removed": id}``
``{"statistics": true}``    answer ``{"statistics": {...}}``, as at the end
anything else               answer ``{"error": why}``; the server goes on
==========================  ====================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from hostlib.addresses import parse_address
from hostlib.config import TransportConfig
from hostlib.errors import ConfigError, InaError
from hostlib.fallback.beside import BesideLink
from hostlib.fallback.config import BATCH, RECEIVE_BUFFER_BYTES, FallbackJob, FallbackSettings
from hostlib.fallback.core import FallbackCore
from hostlib.io.datagrams import DATAGRAM_BYTES, PacketSocket, open_socket
from hostlib.io.link import Pumped
from hostlib.version import PROTOCOL


class FallbackLink(PacketSocket):
    """A connected UDP socket towards the root switch's port."""

    def __init__(self, transport: TransportConfig) -> None:
        """Open the socket, for whole frames in datagrams (*loopback*) or for payloads (*udp*).

        Raises:
            ConfigError: the socket cannot be opened at those addresses.
        """
        local, switch = parse_address(transport.local), parse_address(transport.switch)
        try:
            self._to_a_port = transport.kind == "loopback"
            sock = open_socket(local, switch, RECEIVE_BUFFER_BYTES, held=transport.held, own=self._to_a_port)
        except OSError as error:
            raise ConfigError(
                f"cannot open {transport.local} towards {transport.switch}: {error.strerror}"
            ) from error
        super().__init__(sock, DATAGRAM_BYTES, BATCH)

    def introduce(self) -> None:
        """Send an empty datagram: a software switch's port takes the first sender as the port's peer.

        With *udp* nothing is sent: the switch would count the datagram as a truncated packet without a job.
        """
        if self._to_a_port:
            with contextlib.suppress(OSError):  # the switch does not listen yet
                self.socket.send(b"")

    def add(self, job: FallbackJob) -> None:
        """Raise ConfigError for a job with a worker beside the server: this socket has one far end."""
        if job.beside is not None:
            raise ConfigError(f"job {job.job}: this server has no workers beside it")

    def remove(self, job: int) -> None:
        """Do nothing: `add` adds nothing."""

    def pump(self, core: FallbackCore, control: int, deadline: int) -> None:
        """Serve until `deadline` (monotonic ns), a signal, or until `control` (-1: none) is readable.

        Raises:
            InaError: the socket failed.
        """
        why = Pumped(core.pump(self.io, control, deadline))
        if why is Pumped.ERROR:
            raise InaError(f"the fallback server's socket failed: {self.last_error()}")

    @property
    def errors(self) -> int:
        """Number of failed calls to send or receive."""
        return int(self.io.errors)


_SLICE_NS = 50_000_000
"""Longest time that a command or a signal waits for the loop that serves packets, in nanoseconds."""
_LINE_BYTES = 1 << 20


class FallbackServer(contextlib.AbstractContextManager["FallbackServer"]):
    """Serves jobs over one socket; a context manager that closes it."""

    def __init__(
        self, transport: TransportConfig, settings: FallbackSettings, *, beside: bool = False
    ) -> None:
        """Open the socket.

        Args:
            transport: Local address, the switch's address, and the addresses in frames (*loopback*).
            settings: Its `endpoints` must equal the transport's; None for *udp*.
            beside: Whether to serve workers of this machine, too, at the same address
                (`hostlib.fallback.beside`).

        Raises:
            ConfigError: the socket cannot be opened.
            NativeMissing: the compiled library cannot be loaded.
        """
        self.core = FallbackCore(settings)
        self.link = BesideLink(transport) if beside else FallbackLink(transport)
        self._settings = settings
        self._line = b""

    def run(self, commands: int, answers: TextIO) -> None:
        """Serve until `commands` (a file descriptor, -1: none) ends, or SIGTERM or SIGINT arrives.

        First, write a line of JSON with the server's address; at the end, a line with the statistics. Call
        it from the main thread.

        Raises:
            InaError: the socket failed.
        """
        host, port = self.link.socket.getsockname()
        ready = {"local": f"{host}:{port}", "lanes": self._settings.lanes}
        poller = select.poll()
        if commands >= 0:
            poller.register(commands, select.POLLIN)
        with _noted_signals() as signals:
            self.link.introduce()
            _write(answers, {"ready": ready, "protocol": PROTOCOL})
            while not signals:
                self.link.pump(self.core, commands, time.monotonic_ns() + _SLICE_NS)
                if poller.poll(0):
                    data = os.read(commands, 1 << 16)
                    for answer in self._take(data):
                        _write(answers, answer)
                    if not data:
                        break
        _write(answers, {"statistics": self.statistics()})

    def execute(self, line: str | bytes) -> dict[str, object]:
        """Carry out one command; return the answer."""
        try:
            command = _parse(line)
            if not isinstance(command, dict) or len(command) != 1:
                raise ConfigError("a command is an object with one of: add, remove, statistics")
            ((what, argument),) = command.items()
            match what:
                case "add":
                    job = FallbackJob.from_json(argument)
                    self._add(job)
                    return {"added": job.job}
                case "remove":
                    if type(argument) is not int:
                        raise ConfigError(f"remove is {argument!r}, must be the id of a job")
                    self.core.remove_job(argument)
                    self.link.remove(argument)
                    return {"removed": argument}
                case "statistics":
                    return {"statistics": self.statistics()}
                case _:
                    raise ConfigError(f"unknown command {what!r}; known are add, remove, statistics")
        except KeyError as error:
            return {"error": f"job {error} is not served"}
        except ConfigError as error:
            return {"error": str(error)}

    def statistics(self) -> dict[str, Any]:
        """Return counters by job id, counters of packets without a job, and processor time, for JSON."""
        counters = self.core.statistics()
        strangers = counters.pop(None)
        return {
            "jobs": {str(job): values for job, values in counters.items()},
            "dropped": {name: value for name, value in strangers.items() if value},
            "strangers": self.link.strangers,
            "socket_errors": self.link.errors,
            "cpu_s": time.process_time(),
        }

    def close(self) -> None:
        """Close the socket."""
        self.link.close()

    def _add(self, job: FallbackJob) -> None:
        self.core.add_job(job)
        try:
            self.link.add(job)
        except ConfigError:
            self.core.remove_job(job.job)
            raise

    def _take(self, data: bytes) -> Iterable[dict[str, object]]:
        """Carry out the commands whose lines `data` completes; the end of input completes the last line."""
        *lines, self._line = (self._line + (data or b"\n")).split(b"\n")
        if len(self._line) > _LINE_BYTES:
            self._line = b""
            yield {"error": f"a command is longer than {_LINE_BYTES} bytes"}
        for line in lines:
            if line.strip():
                yield self.execute(line)

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Give a list to which SIGTERM and SIGINT are appended; then restore the earlier handlers."""
    came: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda each, _: came.append(each)) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parse(line: str | bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"a command is not JSON: {error}") from error


def _write(answers: TextIO, message: object) -> None:
    print(json.dumps(message), file=answers, flush=True)
