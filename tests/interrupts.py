"""An interrupt as a terminal sends it: to a command and all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def interrupted(*arguments: object, loaded: str) -> tuple[int, str, str]:
    """Interrupt ``ina`` once a process of its pool has loaded a library of this name.

    Returns its status, output and errors.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "ina", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not any(_has(child, loaded) for child in children.read_text().split()):
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=600)
    return process.returncode, out, said


def _has(child: str, library: str) -> bool:
    """Return whether a process of the pool, which is no copy of its parent any more, has loaded a library."""
    try:
        command, files = (Path("/proc", child, name).read_text() for name in ("cmdline", "maps"))
    except OSError:
        return False
    return "spawn_main" in command and library in files
