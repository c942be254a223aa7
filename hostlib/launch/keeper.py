"""End a job's processes when its launcher has ended, for any reason.

A launcher that is killed with SIGKILL cannot end its workers. So each job has a keeper: this file, run as
a program of its own, which the launcher starts before any worker, and which leads the process group that
all workers join as they start. It reads a pipe that only the launcher can write to; when the launcher ends,
the pipe ends, and the keeper ends the group: the workers and the processes that they started. It does not
reach processes that leave the group (``setsid``); a launcher that has called `adopt` gets these as children
when their parents end, and ends them by `end_adopted`.

It starts without the site's packages, and with few imports: this takes some milliseconds, in parallel with
the launcher.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_S = 2.0
"""Seconds from SIGTERM to SIGKILL."""

_LOOK_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36


def members(group: int) -> list[int]:
    """Return the ids of a group's processes that have not ended, without the group's leader."""
    return [process for process, _, its_group in _processes() if its_group == group != process]


def _processes() -> list[tuple[int, int, int]]:
    """Return the ids of each process that has not ended, of its parent, and of its group."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes long to import
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - the same
                stat = file.read()
        except OSError:  # it ended while we looked
            continue
        # The fields behind the name, which may contain anything: state, parent, group.
        state, parent, group = stat.rpartition(b")")[2].split()[:3]
        if state not in (b"Z", b"X"):
            found.append((int(name), int(parent), int(group)))
    return found


def wait_for_end(group: int, timeout_s: float) -> list[int]:
    """Wait until only a group's leader is left; return the other processes left after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (left := members(group)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return left


def end_group(group: int, grace_s: float = GRACE_S) -> None:
    """End the processes of a group, first with SIGTERM; if some ignore it, kill the group with its leader."""
    if not members(group):
        return
    os.killpg(group, signal.SIGTERM)
    os.killpg(group, signal.SIGCONT)  # a stopped process would not act on it
    if wait_for_end(group, grace_s):
        os.killpg(group, signal.SIGKILL)


def adopt() -> None:
    """Make this process, instead of init, the parent of its descendants whose parents end (prctl(2))."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_adopted(grace_s: float = GRACE_S) -> int:
    """End all adopted descendants of this process; return their number.

    Call it when none of this process's own children runs any more.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + grace_s
    while found := [process for process, parent, _ in _processes() if parent == os.getpid()]:
        for process in found:
            late = time.monotonic() > deadline
            if process not in ended or late:
                os.kill(process, signal.SIGKILL if late else signal.SIGTERM)  # a child: number not reused
            ended.add(process)
        if time.monotonic() > deadline + grace_s:
            break
        time.sleep(_LOOK_S)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return len(ended)


def main() -> None:
    """Wait for the launcher's end, then end the group."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_group(os.getpid())


if __name__ == "__main__":
    main()
