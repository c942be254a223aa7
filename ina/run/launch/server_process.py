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
from hostlib.launch.launcher import end_process, signal_name
from hostlib.version import other_protocol
from ina.errors import ProcessFailed

STOP_TIMEOUT_S = 5.0


class ServerProcess:
    """A process ``ina NAME …``; as a context manager, it stops the process at the end of the context.

    The process ends when its standard input ends, and therefore also when the process that started it ends.
    """

    def __init__(
        self,
        name: str,
        title: str,
        arguments: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        """Start the process; do not wait until it is ready, so that several processes can start at once.

        Args:
            name: The subcommand of ``ina``.
            title: The name of the process in messages.
            arguments: The arguments of the subcommand.
            pass_fds: File descriptors that the process inherits.
            prefix: A command that runs the process, such as ``ip netns exec NAME``.
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
        """Wait until the process is ready; return the JSON object that it prints then.

        Raises:
            ProcessFailed: the process ended before it was ready, or is of another version, and still runs.
                A process that ended has printed the reason to standard error, unless a signal ended it.
        """
        self._ready = self._ready or self.hear()
        if self._ready is None:
            status = self._process.wait()
            if status < 0:
                raise ProcessFailed(f"{self.title} {_how(status)} before it was ready")
            raise ProcessFailed(f"{self.title} did not start", status=status)
        if other := other_protocol(self._ready):
            raise ProcessFailed(f"{self.title}: {other}")
        return self._ready

    @property
    def pid(self) -> int:
        """The ID of the process."""
        return self._process.pid

    @property
    def started(self) -> bool:
        """Whether the process has printed that it is ready, and is of this version."""
        return self._ready is not None and not other_protocol(self._ready)

    def ended(self) -> str | None:
        """Return how the process ended, as text for users; None while it runs."""
        status = self._process.poll()
        return None if status is None else f"{self.title} {_how(status)}"

    def say(self, message: object) -> None:
        """Write a message to the process's standard input, as JSON; do nothing if it has ended."""
        with contextlib.suppress(OSError, ValueError):
            print(json.dumps(message), file=self._stdin, flush=True)

    def hear(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Return the next JSON object that the process prints.

        None: the output has ended, or the process has printed nothing for `timeout_s` seconds.
        """
        with contextlib.suppress(ValueError):  # closed by another thread, or cut off in the middle
            if timeout_s is not None:
                poller = select.poll()
                poller.register(self._stdout, select.POLLIN)
                if not poller.poll(timeout_s * 1e3):
                    return None
            if line := self._stdout.readline():
                message: dict[str, Any] = json.loads(line)
                return message
        return None

    def is_stopped(self) -> bool:
        """Return whether the process is suspended, for example by SIGSTOP."""
        with contextlib.suppress(OSError):
            after_name = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2]
            return after_name.split()[0] == "T"
        return False

    def kill(self) -> None:
        """Kill the process at once; call `stop` afterwards."""
        self._process.kill()

    def stop(self) -> None:
        """End the process: send SIGTERM, and SIGKILL if it still runs after `STOP_TIMEOUT_S` seconds."""
        self._process.terminate()
        end_process(self._process, STOP_TIMEOUT_S)
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
    """Describe how a process ended, given its exit status; a negative status is a signal's number."""
    return f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
