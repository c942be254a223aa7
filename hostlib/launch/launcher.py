"""Start the worker processes of a job, watch them, and end them together.

The workers and their child processes are one process group, led by a keeper (`hostlib.launch.keeper`) that
ends the group when this process ends.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from hostlib.addresses import parse_address
from hostlib.io.held import HeldAddress, OwnSocket
from hostlib.io.joblog import JobLog
from hostlib.launch import keeper
from hostlib.launch.launched_rank import torch_variables
from hostlib.meet.rendezvous import Rendezvous

# Survivors of a failure raise their own error within the protocol's time limit; then they are ended.
GRACE_S = 12.0
# Time for processes that a worker leaves running (a tee with output to write) after the last worker.
LINGER_S = 2.0
# Time to read the output of ended processes; a process that has left the group may still hold the pipes.
DRAIN_S = 2.0
# A line is passed on whole, up to this length.
MAX_LINE = 64 * 1024
ACCOUNT = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR")
"""Environment variables that describe a user."""
SETTINGS = (
    *("PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "TZ", "LANG", "LC_*"),
    *("CUDA_*", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NCCL_*", "GLOO_*"),
    *("OMP_*", "MKL_*", "OPENBLAS_NUM_THREADS", "SSL_CERT_DIR", "SSL_CERT_FILE", "RAY_ADDRESS"),
    *("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_NODELIST"),
    *("HOROVOD_*", "INA_AS", "INA_FLOAT64", "INA_FUSION_BYTES", "INA_HIERARCHICAL", "INA_NONFINITE"),
    *("INA_NUMBERS", "INA_SLICE_BYTES", "INA_STALL_S", "INA_TIMELINE"),
)
"""Patterns of variables without secrets that programs need; another user's command gets only these."""

__all__ = [
    "HeldAddress",
    "JobLog",
    "LaunchError",
    "OwnSocket",
    "Rendezvous",
    "RunningWorkers",
    "WorkerExit",
    "Workers",
    "parse_address",
    "torch_variables",
]


class LaunchError(Exception):
    """The command could not be started."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """End of a worker: its rank, exit status (128 + signal if it was killed), and time (monotonic)."""

    rank: int
    status: int
    reason: str
    at_s: float = field(default_factory=time.monotonic)


Output = Callable[[int, bytes, bool], None]
"""Receives the output of workers: rank, bytes, whether they came from stderr.

The bytes are whole lines, one or more; or part of a line that is very long, that returns to its beginning
(progress bars), or that is unfinished when its worker ends. If the function raises OSError, it gets no
more output of this stream.
"""


class EndWatcher(Protocol):
    """Receiver of ended workers, such as a `Rendezvous`."""

    def ended(self, rank: int, status: int, reason: str) -> None:
        """Record that the process of `rank` has ended."""


class RunningWorkers(ABC):
    """The running workers of one job, wherever they are.

    Attributes:
        exits: Workers that have ended, in order.
        left_running: Number of processes that workers had left running, and that were ended after them.
    """

    def __init__(self, size: int, rendezvous: EndWatcher) -> None:
        """Watch `size` workers; report their ends to `rendezvous`."""
        self.exits: list[WorkerExit] = []
        self.left_running = 0
        self._size = size
        self._rendezvous = rendezvous

    def wait(self, *, on_tick: Callable[[], None], tick_s: float = 0.1) -> WorkerExit | None:
        """Wait for all workers, and end processes that they leave; call `on_tick` about every `tick_s`.

        Returns the first failure, or None. After a failure, the other workers have `GRACE_S` to end.
        """
        deadline = None
        while len(self.exits) < self._size:
            self._note(self._ended())
            failed = self._first_failure()
            if failed and deadline is None:
                deadline = time.monotonic() + GRACE_S
            if deadline is not None and time.monotonic() > deadline:
                self.kill()
                deadline = None
            on_tick()
            self._pause(tick_s)
        self._finish()
        return self._first_failure()

    @abstractmethod
    def kill(self) -> None:
        """End every process of the job that still runs. Without effect after the first call."""

    @abstractmethod
    def _ended(self) -> list[WorkerExit]:
        """Return all workers that have ended, also workers that an earlier call has returned."""

    @abstractmethod
    def _finish(self) -> None:
        """End processes that the workers leave running."""

    def _pause(self, seconds: float) -> None:
        """Sleep until the next tick."""
        time.sleep(seconds)

    def _note(self, found: Sequence[WorkerExit]) -> None:
        known = {exit_.rank for exit_ in self.exits}
        # Of those that ended together, one that a signal killed is the likely cause: it is first.
        for exit_ in sorted(found, key=lambda each: each.status <= 128):
            if exit_.rank not in known:
                known.add(exit_.rank)
                self.exits.append(exit_)
                self._rendezvous.ended(exit_.rank, exit_.status, exit_.reason)

    def _first_failure(self) -> WorkerExit | None:
        return next((exit_ for exit_ in self.exits if exit_.status), None)


class Workers(RunningWorkers):
    """The processes of one job on this machine."""

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        rendezvous: EndWatcher,
        on_output: Output,
        inherited: Sequence[str] | None = None,
    ) -> None:
        """Start one process for each item of `environments`, whose position is the rank.

        Args:
            command: Program and arguments.
            environments: Variables of each worker.
            rendezvous: Receiver of ended workers.
            on_output: Called with the workers' output.
            inherited: Patterns of names of this process's variables that each worker inherits; None: all.

        Raises:
            LaunchError: the command cannot be run; no process is left behind.
        """
        super().__init__(len(environments), rendezvous)
        self._inherited = environment(("*",) if inherited is None else inherited)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._over = False
        self._keeper: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        # The kernel does not reuse this number before the keeper has been waited for.
        self._group = self._keeper.pid
        try:
            for rank, variables in enumerate(environments):
                self._start(rank, command, variables, on_output)
        except OSError as error:
            self.kill()
            raise cannot_run(command[0], error.strerror) from error
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End every process of the job, first with SIGTERM. Without effect after the first call."""
        if self._keeper:
            running = [process for process in self._processes if process.poll() is None]
            for process in running:
                process.terminate()  # also a process that has left the group
            keeper.end_group(self._group)
            for process in running:
                end_process(process)
            self._keeper.kill()
            self._keeper.communicate()
            self._keeper = None
        deadline = time.monotonic() + DRAIN_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        self._over = True

    def _start(
        self, rank: int, command: Sequence[str], variables: Mapping[str, str], on_output: Output
    ) -> None:
        process = subprocess.Popen(
            command,
            env={**self._inherited, "PATH": _path(), "PYTHONUNBUFFERED": "1", **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            process_group=self._group,  # an interrupt from the keyboard goes to the launcher only
        )
        self._processes.append(process)
        for stream, is_error in ((process.stdout, False), (process.stderr, True)):
            reader = threading.Thread(
                target=self._forward, args=(stream, rank, is_error, on_output), daemon=True
            )
            reader.start()
            self._readers.append(reader)

    def _forward(self, stream: BinaryIO, rank: int, is_error: bool, on_output: Output) -> None:
        held = b""
        with stream, contextlib.suppress(OSError):  # the reader of our output has closed it
            while data := stream.read(MAX_LINE):
                data = held + data
                end = _passed_on(data)
                held = data[end:]
                if self._over:
                    return  # all have ended, except processes that left the group
                if end:
                    on_output(rank, data[:end], is_error)
            if held:
                on_output(rank, held, is_error)

    def _ended(self) -> list[WorkerExit]:
        found = []
        for rank, process in enumerate(self._processes):
            status = process.poll()
            if status is not None and status < 0:
                found.append(WorkerExit(rank, 128 - status, f"killed by {signal_name(-status)}"))
            elif status is not None:
                found.append(WorkerExit(rank, status, f"exited with status {status}"))
        return found

    def _finish(self) -> None:
        if self._keeper:
            self.left_running = len(keeper.wait_for_end(self._group, LINGER_S))
        self.kill()

    def _pause(self, seconds: float) -> None:
        """Sleep until the next tick, or until a worker ends."""
        running = [process for process in self._processes if process.poll() is None]
        if running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[0].wait(timeout=seconds)


def environment(patterns: Sequence[str]) -> dict[str, str]:
    """Return the variables of this process's environment whose names match one of these patterns."""
    return {
        name: text
        for name, text in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def account(user: pwd.struct_passwd) -> dict[str, str]:
    """Return the variables of `ACCOUNT` for a user, except TMPDIR, whose default suits all users."""
    return {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}


def cannot_run(program: str, why: str | None) -> LaunchError:
    """Return the error for a command that does not start, with advice if it is a Python file."""
    advice = f"; use 'python {program}'" if program.endswith(".py") and Path(program).is_file() else ""
    return LaunchError(f"cannot run {program!r:.200}: {why}{advice}")


def _path() -> str:
    """Return the search path with this interpreter's folder first, so that `python` has this package."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def signal_name(number: int) -> str:
    """Return a signal's name; for a real-time signal SIGRTMIN plus its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _passed_on(data: bytes) -> int:
    """Return the number of bytes of `data` to pass on now, before more data arrives."""
    # Up to the last newline or carriage return, except one at the end: a newline may follow it.
    end = max(data.rfind(b"\n") + 1, data.rfind(b"\r"))
    return end or (len(data) if len(data) > MAX_LINE else 0)


def end_process(process: subprocess.Popen[Any], patience_s: float = keeper.GRACE_S) -> None:
    """Wait for a process that was asked to end; kill it if it has not ended after `patience_s` seconds."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
