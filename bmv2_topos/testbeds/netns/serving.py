"""Starts a switch as a process, and waits until its P4Runtime answers."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bmv2_topos.testbeds.netns.errors import StepFailed

_TICK_S = 0.01


def start_switch(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a switch that outlives this process; its output goes into the log."""
    with log.open("w") as output:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def await_service(name: str, process: subprocess.Popen[bytes], address: Path, log: Path) -> None:
    """Wait until a switch listens at its Unix socket.

    Args:
        name: Name of the switch.
        process: Process of the switch.
        address: Path of the socket.
        log: File with the process's output, for the error message.

    Raises StepFailed if the process ends first.
    """
    while not _listens(address):
        if process.poll() is not None:
            output = log.read_text().strip() or "no output"
            raise StepFailed(f"switch {name} did not start: {output}")
        time.sleep(_TICK_S)


def _listens(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(address))
        except OSError:
            return False
    return True
