"""The fallback server at a host of a testbed: one for all jobs that use this host's, of any launcher.

The first process that needs it starts it: ``python -m ina.fallback.testbed TESTBED HOST``, in the host's
namespace, a `FallbackService` at a Unix socket in the testbed's folder. It ends with its last connection and
job, or with the testbed. Connecting, starting and ending it need a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import State
from bmv2_topos.testbeds.netns.names import namespace
from hostlib.launch import command_line
from ina.errors import ProcessFailed, RunError
from ina.fallback.remote import RemoteFallback
from ina.fallback.service import serving

_log = logging.getLogger(__name__)
_LOOK_S = 0.1


class TestbedFallback(RemoteFallback):
    """An `ina.fallback.process.Fallback`; if the server's process dies, it is restarted."""

    __test__ = False  # pytest takes classes called Test* for tests

    def __init__(self, state: State, host: str, *, lanes: int, owner: str = "", start: bool = True) -> None:
        """Connect to the fallback server of a host.

        Args:
            state: The testbed.
            host: The host.
            lanes: Values of a packet.
            owner: See `RemoteFallback`.
            start: Start it if it is not there.

        Raises ProcessFailed.
        """
        self._state, self._host = state, host
        self._starting = False
        self._may_start = start
        port = state.topology.port_to(state.topology.rack_of[host], host)
        super().__init__(port, host, state.socket(_name(host)), None, lanes=lanes, owner=owner)
        self._may_start = False  # again only for jobs

    def check(self) -> str | None:
        """Return why there is no fallback server any more, or None. Call it several times per second."""
        found = super().check()
        return None if self._starting else found

    def _connect(self, patience_s: float) -> socket.socket:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_locked(self._state, self._host))
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return super()._connect(patience_s)
            if not self._may_start and not self._jobs:
                raise ProcessFailed(f"{self._title} is not there")
            self._starting = True
            try:
                self._start()
                return super()._connect(patience_s)
            finally:
                self._silent_s, self._starting = 0.0, False

    def _start(self) -> None:
        """Start the server's process, which outlives this one. Raises ProcessFailed."""
        if self._jobs:
            _log.warning("%s has ended; starting it again", self._title)
        inside = ("ip", "netns", "exec", namespace(self._state.name, self._host))
        place = self._state.log(_name(self._host))
        with place.open("w") as log:
            process = subprocess.Popen(
                [*inside, *command_line.module("ina.fallback.testbed", self._state.name, self._host)],
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
        said = "; ".join(place.read_text(errors="replace").split("\n")).strip("; ") or "no message"
        raise ProcessFailed(f"{self._title} did not start: {said}")


def _name(host: str) -> str:
    return f"{host}.fallback"


@contextlib.contextmanager
def _locked(state: State, host: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of a host's server. Raises OSError: the testbed is gone, or with LOCK_NB it is held."""
    with (state.folder / f".{_name(host)}.lock").open("w") as handle:
        fcntl.flock(handle, how)
        yield


def serve(name: str, host: str, on_ready: Callable[[], None]) -> None:
    """Serve at a host of a testbed until it is unused, or a signal arrives; for the main thread.

    Raises RunError; OSError if the testbed is gone meanwhile.
    """
    try:
        state = netns.find(name)
    except netns.NetnsError as error:
        raise ProcessFailed(str(error)) from error
    there = state.socket(_name(host))
    with serving(state.topology, host, there, None, lanes=state.program.lanes) as (
        fallback,
        service,
        stopped,
    ):
        on_ready()
        while not stopped.wait(_LOOK_S):
            fallback.check()  # clients learn of its final end
            if not service.unused:
                continue
            with contextlib.suppress(BlockingIOError), _locked(state, host, fcntl.LOCK_EX | fcntl.LOCK_NB):
                if service.unused:
                    there.unlink()
                    fallback.stop()  # before another one starts
                    return


if __name__ == "__main__":
    try:
        serve(sys.argv[1], sys.argv[2], lambda: print(json.dumps({"ready": sys.argv[2]}), flush=True))
    except (RunError, OSError) as error:
        sys.exit(str(error))
