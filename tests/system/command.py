"""Runs the `ina` command as a user would.

Nothing here has a time limit: what hangs is ended by pytest's, and all that it has started with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest

from ina.cli import main

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0
"""For what happens soon, unless the machine is slow or it never does."""
PATIENT = ("--timeout", 300)
"""Options of a run that is to succeed, however slow the machine is: silence is none of its subjects."""
WORKERS = Path(__file__).parent / "workers"
TORCHRUN = (sys.executable, str(WORKERS / "torchrun.py"))
"""``torchrun``, but for one test that has torch's own: its agent and what it tells ranks are the same."""
ENVIRONMENT = {"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals that the command has handlers for."""
FAMILY = "INA_TEST_FAMILY"
"""Environment variable of all that a test has started: the names of its families."""


@contextlib.contextmanager
def family() -> Iterator[str]:
    """End with the block all processes that were started in it, whoever their parents are by now."""
    name, outer = uuid.uuid4().hex, os.environ.get(FAMILY, "")
    os.environ[FAMILY] = f"{outer} {name}"
    try:
        yield name
    finally:
        os.environ[FAMILY] = outer
        while members := relatives(name):  # also those that were being started
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def relatives(name: str) -> list[int]:
    """Return the processes of a family that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        # who has just ended is nobody's, and another user's environment is not ours to read
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and name.encode() in environment(entry):
                found.append(int(entry.name))
    return found


def environment(process: Path) -> bytes:
    """Return a process's environment, which is nowhere for as long as it becomes another program."""
    while True:
        place = environment_end(process)
        if text := (process / "environ").read_bytes():
            return text
        (process / "exe").readlink()  # zombies and the kernel's threads have no program
        if place and place == environment_end(process):
            return b""  # of the same program all the time
        time.sleep(0.002)


def environment_end(process: Path) -> int:
    """Return where a process's environment ends in its memory, which differs by program; 0: nowhere yet."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[48])


def start(
    *arguments: object, before: Sequence[str] = (), program: Sequence[str] = ("-m", "ina")
) -> subprocess.Popen[str]:
    """Start ``ina arguments…`` with its output captured.

    Args:
        arguments: Words of the command.
        before: A command that runs it.
        program: What Python is to run instead of ``ina`` as it is.
    """
    return subprocess.Popen(
        [*before, sys.executable, *program, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(done: Callable[[], T], patience_s: float = PATIENCE_S, state: Callable[[], object] = str) -> T:
    """Wait until this is true, and return what it is; fail if it is not in time, with the state of things."""
    give_up = time.monotonic() + patience_s
    while not (found := done()):
        assert time.monotonic() < give_up, f"not within {patience_s:g} s {state()}"
        time.sleep(0.02)
    return found


def ended(
    process: subprocess.Popen[str], patience_s: float | None = None, *, by: signal.Signals | None = None
) -> tuple[int, str, str]:
    """Return status, output and errors of a process, to which a signal may be sent first."""
    if by is not None:
        process.send_signal(by)
    output, errors = process.communicate(timeout=patience_s)
    return process.returncode, output, errors


def finish(process: subprocess.Popen[str], status: int = 0) -> tuple[str, str]:
    """Return output and errors of a process, which must end with this status."""
    output, errors = process.communicate()
    assert process.returncode == status, output + errors
    return output, errors


def ends(processes: Sequence[subprocess.Popen[str]], patience_s: float = 300) -> list[tuple[int, str, str]]:
    """Return status, output and errors of each process."""
    return [ended(process, patience_s) for process in processes]


def succeed(processes: Sequence[subprocess.Popen[str]], patience_s: float = 300) -> list[str]:
    """Return the output of each process; fail with all that they have said unless all end with status 0."""
    done = ends(processes, patience_s)
    parts = [
        f"---- process {number}: status {status}, output:\n{output}\nerrors:\n{errors}"
        for number, (status, output, errors) in enumerate(done)
    ]
    assert not any(status for status, _, _ in done), "\n".join(parts)
    return [output for _, output, _ in done]


def begun(process: subprocess.Popen[str], workers: int = 1, word: str = "started") -> subprocess.Popen[str]:
    """Return it when so many workers have said that they started; fail with all that it has said."""
    for _ in range(workers):
        line = process.stdout.readline()
        if word not in line:
            process.terminate()
            output, errors = process.communicate()
            raise AssertionError(f"status {process.returncode}, output:\n{line}{output}\nerrors:\n{errors}")
    return process


def ina(*arguments: object, status: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``ina arguments…`` to its end, which must be with this status unless it is None."""
    process = start(*arguments)
    output, errors = process.communicate()
    assert status in (None, process.returncode), output + errors
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def here(
    *arguments: object, status: int | None = None, encoding: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``ina arguments…`` to its end, in this process; switches, servers and workers are processes.

    It must end with this status unless that is None, and its streams have the encoding. This saves the start
    of Python and of the command's modules, which takes longer than many a run.
    """
    handlers = {number: signal.getsignal(number) for number in HANDLED}
    words = ["ina", *map(str, arguments)]
    found: object = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        _caught(1, encoding) as output,
        _caught(2, encoding) as errors,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        patch.chdir(ROOT)
        patch.setattr("sys.argv", words)
        patch.setattr("sys.unraisablehook", sys.unraisablehook)  # the command has one of its own
        warnings.resetwarnings()
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        try:
            main()
        except SystemExit as ended:
            found = ended.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        for stream in (output, errors):
            stream.seek(0)
        assert isinstance(found, int)
        done = subprocess.CompletedProcess(words, found, output.read(), errors.read())
    assert status in (None, found), done.stdout + done.stderr
    return done


def good(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``ina arguments…`` in this process; it must succeed."""
    return here(*arguments, status=0)


def refused(*arguments: object, status: int = 2) -> str:
    """Run ``ina arguments…`` in this process; it must end with this status. Returns its errors."""
    return here(*arguments, status=status).stderr


def report(*arguments: object) -> dict[str, Any]:
    """Run ``ina arguments… --json`` in this process; it must succeed. Returns what it reports."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    found: dict[str, Any] = json.loads(good(*arguments[:end], "--json", *arguments[end:]).stdout)
    return found


@contextlib.contextmanager
def _caught(number: int, encoding: str | None) -> Iterator[IO[str]]:
    """Have a file in the place of a stream of this process and of what it starts meanwhile."""
    with tempfile.TemporaryFile("w+", buffering=1, encoding=encoding) as file:
        before = os.dup(number)
        os.dup2(file.fileno(), number)
        try:
            yield file
        finally:
            os.dup2(before, number)
            os.close(before)


def worker(name: str, *arguments: object) -> list[str]:
    """Return ``-- COMMAND…`` for a worker script of this folder."""
    return ["--", sys.executable, str(WORKERS / name), *map(str, arguments)]


def said_by(rank: int, output: str) -> list[str]:
    """Return the lines that a rank wrote."""
    return [line.removeprefix(f"[{rank}] ") for line in output.splitlines() if line.startswith(f"[{rank}] ")]


def children(pid: int) -> dict[int, str]:
    """Return the command lines of a process's children."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            found[int(entry.name)] = command
    return found


def freeze(process: int) -> None:
    """Stop a process until SIGCONT; return when its threads have stopped, which may still answer before."""
    os.kill(process, signal.SIGSTOP)
    while any(_state(thread) != "T" for thread in Path(f"/proc/{process}/task").iterdir()):
        time.sleep(0.002)


def runs(process: int) -> bool:
    """Return whether a process is there and no zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return _state(Path(f"/proc/{process}")) != "Z"
    return False


def _state(thread: Path) -> str:
    """Return the state of a thread: ``T`` is stopped, ``Z`` a zombie."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]
