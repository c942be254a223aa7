"""Another user of the machine sends whatever to all UDP ports of a run (docs/explanations/security.md).

In a network namespace of its own, so that no other run is attacked beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system import stranger
from tests.system.clusters import NETNS
from tests.system.command import PATIENT, ROOT, start, worker

TOOLS = shutil.which("unshare") and shutil.which("nsenter")
pytestmark = [*NETNS, pytest.mark.skipif(not TOOLS, reason="no unshare and nsenter")]

ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs a command in a namespace with nothing but loopback."""
EARLY, ENOUGH = 20, 150
"""Rounds before the workers have started, and in all."""


class Stranger:
    """Another user in the network namespace that a process makes."""

    def __init__(self, pid: int) -> None:
        while Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            os.sched_yield()
        self._process = subprocess.Popen(
            ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, stranger.__file__],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def strike(self) -> dict[str, Any]:
        """Let it try once; return what it has done in all."""
        print(file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def stop(self) -> None:
        """End it."""
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.mark.parametrize(
    ("options", "workers", "ports"),
    [
        (("-np", 2), 2, 4),
        (("-np", 2, "--program", "shared", "--preempt", "--slots", 64), 2, 6),
        (("--program", "shared", "--tree", "2x2"), 4, 14),
    ],
    ids=["exclusive", "shared", "tree"],
)
def test_another_user_gets_nothing_and_falsifies_nothing(
    tmp_path: Path, options: tuple[object, ...], workers: int, ports: int
) -> None:
    stop = tmp_path / "stop"
    run = start(
        "run",
        "--lanes",
        32,
        "--port-kind",
        "udp",
        "--json",
        *PATIENT,
        *options,
        *worker("marks.py", tmp_path / "m", "--until", stop),
        before=ALONE,
    )
    other = Stranger(run.pid)
    try:
        while len(other.strike()["ports"]) < ports:  # before the switch runs
            assert run.poll() is None, run.communicate()
        for _ in range(EARLY):
            other.strike()
        said_by_workers = [run.stderr.readline() for _ in range(workers)]
        for _ in range(ENOUGH - EARLY):
            said = other.strike()
    except BaseException:
        run.terminate()
        raise
    finally:
        other.stop()
        stop.touch()
    output, errors = run.communicate()
    assert run.returncode == 0, (said_by_workers, errors)
    assert said["uid"] == stranger.NOBODY
    assert said["leaked"] == 0
    assert said["disguised"] == []
    assert len(said["ports"]) == ports
    assert json.loads(output)["metrics"]["refused_stranger_packets"] == said["sent"]
