"""Runs the `ina` command as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKERS = Path(__file__).parent / "workers"
TIMEOUT_S = 120


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start ``ina arguments…`` with its output captured."""
    return subprocess.Popen(
        [sys.executable, "-m", "controller.cli", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ina(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``ina arguments…`` to its end."""
    process = start(*arguments)
    try:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


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
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            found[int(entry.name)] = command
    return found
