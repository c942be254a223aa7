"""Who holds a job: a process, named so that others on the same machine can tell that it has ended."""

from __future__ import annotations

import os
from pathlib import Path


def this_process() -> str:
    """Name this process: the machine's start, the namespace of process ids, the process id; "" without /proc.

    Process ids mean the same only where the first two are the same.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()} {os.getpid()}"
    except OSError:
        return ""


def has_ended(process: str) -> bool:
    """Return whether a process that `this_process` named is known to have ended.

    False if it runs, if another process has its id by now, and for what cannot be known here: processes of
    other machines, of other namespaces, and from before the machine was started.
    """
    place, _, number = process.rpartition(" ")
    if not place or place != this_process().rpartition(" ")[0] or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it is another user's
    return False
