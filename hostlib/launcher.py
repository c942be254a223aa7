"""Starts the worker processes of a job, watches them, and ends them together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from hostlib.config import parse_address
from hostlib.rendezvous import Rendezvous

# Survivors of a failure raise their own error within the protocol's time limit; then they are ended.
GRACE_S = 12.0
# What a killed worker has written is read by then, unless it left a child that still holds the pipes.
DRAIN_S = 2.0

__all__ = ["LaunchError", "Rendezvous", "WorkerExit", "Workers", "parse_address"]


class LaunchError(Exception):
    """The command could not be started."""


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How a worker ended: its rank, exit status (128 + signal if it was killed), and when (monotonic)."""

    rank: int
    status: int
    reason: str
    at_s: float = field(default_factory=time.monotonic)


Output = Callable[[int, str, bool], None]  # rank, line, whether it came from stderr


class Workers:
    """The running processes of one job."""

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        rendezvous: Rendezvous,
        on_line: Output,
    ) -> None:
        """Start one process per environment; the position is the rank.

        Raises:
            LaunchError: the command cannot be run; no process is left behind.
        """
        self._rendezvous = rendezvous
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self.exits: list[WorkerExit] = []
        try:
            for rank, environment in enumerate(environments):
                self._start(rank, command, environment, on_line)
        except OSError as error:
            self.kill()
            raise LaunchError(f"cannot run {command[0]!r}: {error.strerror}") from error
        except BaseException:
            self.kill()
            raise

    def wait(self, *, on_tick: Callable[[], None], tick_s: float = 0.1) -> WorkerExit | None:
        """Wait for all workers; `on_tick` is called about every `tick_s`.

        Returns the first failure, or None. After one, the others have `GRACE_S` to notice.
        """
        deadline = None
        while len(self.exits) < len(self._processes):
            self._collect()
            failed = self._first_failure()
            if failed and deadline is None:
                deadline = time.monotonic() + GRACE_S
            if deadline is not None and time.monotonic() > deadline:
                self.kill()
                deadline = None
            on_tick()
            self._pause(tick_s)
        for reader in self._readers:
            reader.join()
        return self._first_failure()

    def kill(self) -> None:
        """End every worker that still runs, with what it started, first politely."""
        running = [process for process in self._processes if process.poll() is None]
        for process in running:
            _signal_group(process, signal.SIGTERM)
        for process in running:
            try:
                process.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()
        deadline = time.monotonic() + DRAIN_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def _start(
        self, rank: int, command: Sequence[str], environment: Mapping[str, str], on_line: Output
    ) -> None:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PATH": _path(), "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,  # an interrupt from the keyboard is for us; `kill` reaches its children too
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stderr is not None
        for stream, is_error in ((process.stdout, False), (process.stderr, True)):
            reader = threading.Thread(target=_forward, args=(stream, rank, is_error, on_line), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _collect(self) -> None:
        known = {exit_.rank for exit_ in self.exits}
        for rank, process in enumerate(self._processes):
            status = process.poll()
            if rank in known or status is None:
                continue
            if status < 0:
                exit_ = WorkerExit(rank, 128 - status, f"killed by {signal.Signals(-status).name}")
            else:
                exit_ = WorkerExit(rank, status, f"exited with status {status}")
            self.exits.append(exit_)
            self._rendezvous.ended(rank, exit_.status, exit_.reason)

    def _first_failure(self) -> WorkerExit | None:
        return next((exit_ for exit_ in self.exits if exit_.status), None)

    def _pause(self, seconds: float) -> None:
        """Sleep until the next tick, or until a worker ends."""
        running = [process for process in self._processes if process.poll() is None]
        if running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[0].wait(timeout=seconds)


def _path() -> str:
    """Return the search path with our own interpreter first: `python` is to be one that has this package."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _signal_group(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _forward(stream: IO[str], rank: int, is_error: bool, on_line: Output) -> None:
    with stream:
        for line in stream:
            on_line(rank, line.rstrip("\n"), is_error)
