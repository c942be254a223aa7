"""Starts the embedded switch as a process of its own and stops it again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from controller.cli.errors import FAILED, Failure

STOP_TIMEOUT_S = 5.0


class EmbeddedSwitch:
    """A running ``ina switch``; a context manager that stops it."""

    def __init__(self, options: Sequence[str]) -> None:
        """Start it with these options and wait until it serves.

        Raises:
            Failure: it ended before it was ready; the reason has been printed by it.
        """
        # It ends when its standard input does: an ina that dies takes its switch along.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controller.cli", "switch", "--until-eof", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt from the keyboard is for us, not for it
        )
        try:
            ready = self._await_ready()
        except BaseException:
            self.stop()
            raise
        self.address = f"127.0.0.1:{ready['grpc_port']}"
        self._udp_ports: dict[str, int] = ready["udp_ports"]

    def udp_address(self, port: int) -> str:
        """Return where a port's UDP socket is bound."""
        return f"127.0.0.1:{self._udp_ports[str(port)]}"

    def ended(self) -> str | None:
        """Return how the process ended, or None while it runs."""
        status = self._process.poll()
        return None if status is None else f"the switch process ended with status {status}"

    def _await_ready(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Failure("the switch did not start", exit_code=self._process.wait() or FAILED)
        ready: dict[str, Any] = json.loads(line)
        return ready

    def stop(self) -> None:
        """Ask it to end, and make it end. Without effect if done before."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
