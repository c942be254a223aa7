"""An ``ina`` subcommand as a process, which prints one line of JSON once it is ready.

A thread reads what the process prints. An `AnsweringProcess` must answer requests; the answers also show that
it lives.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hostlib.launch import command_line
from hostlib.launch.launcher import end_process, signal_name
from hostlib.version import other_protocol
from ina.errors import ProcessFailed

STOP_TIMEOUT_S = 5.0
ANSWER_S = 10.0
"""Maximum time to wait for an answer, in seconds; the process may have to wait for a CPU."""
ASK_S = 0.5
"""Interval, in seconds, of requests for statistics."""
PATIENCE_S = 3.0
"""Time without an answer, in seconds, after which the process is killed; workers give up only later."""


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
        self._ready: dict[str, Any] | None = None
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
        self._news = threading.Condition()
        self._messages: deque[dict[str, Any]] = deque()
        self._at_end = False
        self._listener = threading.Thread(target=self._listen, args=(self._stdout,), daemon=True)
        self._listener.start()

    def ready(self) -> dict[str, Any]:
        """Wait until the process is ready; return the JSON object that it prints then.

        Raises:
            ProcessFailed: the process ended before it was ready, or is of another version, and still runs.
                A process that ended has printed the reason to standard error, unless a signal ended it.
        """
        with self._news:
            self._news.wait_for(lambda: self._ready is not None or self._at_end)
        if self._ready is None:
            status = self._process.wait()
            if status < 0:
                raise ProcessFailed(f"{self.title} {_how(status)} before it was ready")
            raise ProcessFailed(f"{self.title} did not start", status=status)
        if self.refusal:
            raise ProcessFailed(self.refusal)
        return self._ready

    @property
    def refusal(self) -> str:
        """Why the process, which is ready, cannot be used: it is of another version; "": it can be used."""
        other = other_protocol(self._ready) if self._ready is not None else ""
        return other and f"{self.title}: {other}"

    @property
    def pid(self) -> int:
        """The ID of the process."""
        return self._process.pid

    @property
    def started(self) -> bool:
        """Whether the process has printed that it is ready, and is of this version."""
        return self._ready is not None and not self.refusal

    def ended(self) -> str | None:
        """Return how the process ended, as text for users; None while it runs."""
        status = self._process.poll()
        return None if status is None else f"{self.title} {_how(status)}"

    def say(self, message: object) -> None:
        """Write a message to the process's standard input, as JSON; do nothing if it has ended."""
        with contextlib.suppress(OSError, ValueError):
            print(json.dumps(message), file=self._stdin, flush=True)

    def hear(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Return the next JSON object that the process prints after the one that says that it is ready.

        None: the output has ended, or the process has printed nothing for `timeout_s` seconds.
        """
        with self._news:
            self._news.wait_for(lambda: self._messages or self._at_end, timeout_s)
            return self._messages.popleft() if self._messages else None

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
        self._listener.join(STOP_TIMEOUT_S)
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # no process reads the remaining output
                stream.close()

    def _listen(self, lines: Iterable[str]) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed by another thread, or cut off in the middle
            for line in lines:
                with self._news:
                    self._take(json.loads(line))
                    self._news.notify_all()
        with self._news:
            self._at_end = True
            self._news.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if self._ready is None:
            self._ready = message
        else:
            self._messages.append(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class AnsweringProcess(ServerProcess):
    """A server process that answers requests for statistics, and is killed when it is silent for too long."""

    def __init__(
        self,
        name: str,
        title: str,
        arguments: Sequence[str],
        *,
        patience_s: float = PATIENCE_S,
        start_s: float = math.inf,
        **how: Any,
    ) -> None:
        """Start the process, without waiting for it.

        Args:
            name: The subcommand of ``ina``.
            title: The name of the process in messages.
            arguments: The arguments of the subcommand.
            patience_s: Time without an answer, in seconds, after which `ended` kills the process.
            start_s: Time, in seconds, after which `ended` kills a process that is not ready.
            **how: See `ServerProcess`.
        """
        self._patience_s, self._start_s = patience_s, start_s
        self._requests = self._replies = 0
        self.latest: Mapping[str, Any] = {}
        """The latest statistics; empty: none yet."""
        self._stuck: str | None = None
        self._asked_s = self._looked_s = time.monotonic()
        self._silent_s = 0.0
        super().__init__(name, title, arguments, **how)

    def ended(self) -> str | None:
        """Return how the process ended; None while it runs and answers. Call it several times per second.

        A process that is silent for too long, because it hangs or was stopped, is killed.
        """
        how = super().ended()
        with self._news:
            if how is None and self._stuck is None and (silent_s := self._silence()):
                self._stuck = f"{self.title} {self._stuck_for(silent_s)}"
                self.kill()
            return self._stuck or how

    def statistics(self) -> Mapping[str, Any]:
        """Return statistics of now; of an earlier time if the process does not answer within `ANSWER_S`."""
        with self._news:
            self._ask()
            wanted = self._requests
            self._news.wait_for(lambda: self._replies >= wanted or self._at_end, ANSWER_S)
            return self.latest

    def _stuck_for(self, silent_s: float) -> str:
        return f"did not answer for {silent_s:g} s"

    def _silence(self) -> float:
        """Ask for statistics; return how long, in seconds, the process was silent, or 0 if not too long."""
        now = time.monotonic()
        # After a pause of our own process, only the last ASK_S count as silence: earlier answers could not
        # be received.
        self._silent_s += min(now - self._looked_s, ASK_S)
        self._looked_s = now
        patience_s = self._patience_s if self.started else self._start_s
        if self.started and self._replies == self._requests:
            if now - self._asked_s > ASK_S:
                self._ask()
            return 0.0
        return patience_s if self._silent_s > patience_s else 0.0

    def _ask(self) -> None:
        self._requests += 1
        self._asked_s, self._silent_s = time.monotonic(), 0.0
        self.say({"statistics": True})

    def _take(self, message: dict[str, Any]) -> None:
        self._silent_s = 0.0
        if "statistics" in message:
            self.latest = message["statistics"]
            self._replies += 1
        else:
            super()._take(message)


def _how(status: int) -> str:
    """Describe how a process ended, given its exit status; a negative status is a signal's number."""
    return f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
