"""An ``ina`` subcommand as a process, which prints one line of JSON once it is ready."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hostlib.launch import command_line
from hostlib.launch.launcher import signal_name
from ina.errors import ProcessFailed

STOP_TIMEOUT_S = 5.0


class ServerProcess:
    """A process ``ina NAME …``, which ends when its standard input ends; a context manager that stops it."""

    def __init__(
        self,
        name: str,
        title: str,
        arguments: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        """Start the process without waiting, so that several can start at once.

        `name` is the subcommand, and `title` the name for users. The process inherits the file descriptors
        `pass_fds`. `prefix` is a command that runs it, such as ``ip netns exec NAME``.
        """
        self.title = title
        # It ends with its standard input: an ina that dies takes it along.
        self._process = subprocess.Popen(
            [*prefix, *command_line.ina(name, *arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
            start_new_session=True,  # keyboard interrupts are for this process alone
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._ready: dict[str, Any] | None = None

    def ready(self) -> dict[str, Any]:
        """Wait for the line of JSON that means that the process is ready, and return its object.

        Raises:
            ProcessFailed: the process ended before; unless a signal ended it, it has printed the reason.
        """
        if self._ready is None:
            self._ready = self.hear()
        if self._ready is None:
            status = self._process.wait()
            if status < 0:
                raise ProcessFailed(f"{self.title} {_how(status)} before it was ready")
            raise ProcessFailed(f"{self.title} did not start", status=status)
        return self._ready

    @property
    def pid(self) -> int:
        """The ID of the process."""
        return self._process.pid

    @property
    def started(self) -> bool:
        """Whether the process has been ready."""
        return self._ready is not None

    def ended(self) -> str | None:
        """Return how the process ended, as a text; None while it runs."""
        status = self._process.poll()
        return None if status is None else f"{self.title} {_how(status)}"

    def say(self, message: object) -> None:
        """Write one line of JSON to the process's standard input; without effect if the process is gone."""
        with contextlib.suppress(OSError, ValueError):
            print(json.dumps(message), file=self._stdin, flush=True)

    def hear(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Return the next line of JSON that it prints; None: its output ended, or none in `timeout_s`."""
        with contextlib.suppress(ValueError):  # closed by another thread, or cut off in the middle
            if timeout_s is not None:
                poller = select.poll()
                poller.register(self._stdout, select.POLLIN)
                if not poller.poll(timeout_s * 1e3):
                    return None
            if line := self._stdout.readline():
                heard: dict[str, Any] = json.loads(line)
                return heard
        return None

    def is_stopped(self) -> bool:
        """Return whether the process is stopped, as by SIGSTOP."""
        try:
            after_name = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2]
        except OSError:
            return False
        return after_name.split()[0] == "T"

    def kill(self) -> None:
        """Kill the process at once; call `stop` afterwards."""
        self._process.kill()

    def stop(self) -> None:
        """Terminate the process; kill it after `STOP_TIMEOUT_S`. Without effect if called before."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # no process reads the remaining output
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _how(status: int) -> str:
    """Return, as text, how a process with this exit status ended."""
    return f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
