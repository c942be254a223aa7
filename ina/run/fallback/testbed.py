"""The fallback server at a host of a testbed: one for all jobs with this fallback host, from any launcher.

The first process that needs the server starts ``python -m ina.run.fallback.testbed TESTBED HOST`` in the
host's namespace: a `FallbackService` at a Unix socket in the testbed's folder. The server ends when it has
neither connections nor jobs, or with the testbed. A process holds the server's lock while it connects to the
server, starts it or ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import State
from bmv2_topos.testbeds.netns.names import namespace
from hostlib.launch import command_line
from hostlib.meet.connections import connected, next_message
from hostlib.version import other_protocol
from ina.errors import ProcessFailed, RunError
from ina.run.fallback.remote import RemoteFallback, serving

_log = logging.getLogger(__name__)
_LOOK_S = 0.1


class TestbedFallback(RemoteFallback):
    """A `Fallback` (see `FallbackServers`) at a host of a testbed; a server that dies is started again."""

    __test__ = False  # pytest takes classes called Test* for tests

    def __init__(self, state: State, host: str, *, lanes: int, owner: str = "", start: bool = True) -> None:
        """Connect to the fallback server of a host.

        Args:
            state: The testbed.
            host: The name of the host.
            lanes: Number of values in a packet.
            owner: Name of the jobs' owner; see `RemoteFallback`.
            start: Start the server if none runs.

        Raises ProcessFailed.
        """
        self._state, self._host = state, host
        self._starting = False
        self._may_start = start
        super().__init__(host, state.socket(_name(host)), None, lanes=lanes, owner=owner)
        self._may_start = False  # from now on, start it again only if it has jobs

    def check(self) -> str | None:
        """Return why the server is lost; None while it serves or starts."""
        return None if self._starting else super().check()

    def _connect(self, patience_s: float) -> socket.socket:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_locked(self._state, self._host))
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                if self._owner and self._may_start:
                    self._end_another_version(patience_s)
                return super()._connect(patience_s)
            if not self._may_start and not self._jobs:
                raise ProcessFailed(f"{self._title} is not running")
            self._starting = True
            try:
                self._start()
                return super()._connect(patience_s)
            finally:
                self._silent_s, self._starting = 0.0, False

    def _end_another_version(self, patience_s: float) -> None:
        """End a server of another version: it holds jobs of the owner, which could not be removed from it."""
        with connected(self._address, patience_s) as connection:
            if other := other_protocol(next_message(connection, patience_s)):
                _log.warning("%s is replaced: %s", self._title, other)
                pid = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4)
                with os.fdopen(os.pidfd_open(int.from_bytes(pid, sys.byteorder))) as process:
                    signal.pidfd_send_signal(process.fileno(), signal.SIGTERM)
                    select.select([process], (), (), patience_s)

    def _start(self) -> None:
        """Start the server's process, which outlives this one. Raises ProcessFailed."""
        if self._jobs:
            _log.warning("%s has ended; starting it again", self._title)
        inside = ("ip", "netns", "exec", namespace(self._state.name, self._host))
        place = self._state.log(_name(self._host))
        with place.open("w") as log:
            process = subprocess.Popen(
                [*inside, *command_line.module("ina.run.fallback.testbed", self._state.name, self._host)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdout is not None
        with process.stdout as ready:
            if ready.readline():
                return
        process.wait()
        message = "; ".join(place.read_text(errors="replace").split("\n")).strip("; ") or "no message"
        raise ProcessFailed(f"{self._title} did not start: {message}")


def _name(host: str) -> str:
    return f"{host}.fallback"


@contextlib.contextmanager
def _locked(state: State, host: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of a host's fallback server inside the context.

    Raises OSError if the testbed is gone; with `LOCK_NB`, also if another process holds the lock.
    """
    with (state.folder / f".{_name(host)}.lock").open("w") as handle:
        fcntl.flock(handle, how)
        yield


def serve(name: str, host: str, on_ready: Callable[[], None]) -> None:
    """Run the fallback server of a testbed's host until it has no clients and no jobs, or a signal arrives.

    Call it in the main thread. Raises RunError; OSError if the testbed has been removed meanwhile.
    """
    try:
        state = netns.find(name)
    except netns.NetnsError as error:
        raise ProcessFailed(str(error)) from error
    address = state.socket(_name(host))
    with serving(state.topology, host, address, None, lanes=state.program.lanes) as (
        fallback,
        service,
        stopped,
    ):
        on_ready()
        while not stopped.wait(_LOOK_S):
            fallback.check()  # restarts the process; its final end is in the answers to clients
            if not service.unused:
                continue
            with contextlib.suppress(BlockingIOError), _locked(state, host, fcntl.LOCK_EX | fcntl.LOCK_NB):
                if service.unused:
                    address.unlink()
                    fallback.stop()  # before another one starts
                    return


if __name__ == "__main__":
    try:
        serve(sys.argv[1], sys.argv[2], lambda: print(json.dumps({"ready": sys.argv[2]}), flush=True))
    except (RunError, OSError) as error:
        sys.exit(str(error))
