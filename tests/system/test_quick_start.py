"""What makes processes ready in less time changes nothing else: for workers of users, and in tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import started
from tests.system.command import ROOT, start

THREADS = "import os; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
CYCLE = """
import gc, sys{loads}

class Last:
    def __del__(self):
        print("collected")

assert sys.modules["sitecustomize"]._keep in gc.callbacks
last = Last()
last.itself = last
"""


@pytest.mark.parametrize("asked", [None, "3"])
def test_workers_have_as_many_threads_as_whoever_ran_the_command_has_said(
    asked: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    if asked:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", asked)
    output, errors = (run := start("run", "-np", 1, "--", sys.executable, "-c", THREADS)).communicate()
    assert run.returncode == 0, errors
    assert output.splitlines()[0] == str(asked)


@pytest.mark.parametrize("loads", ["", ", numpy, hostlib"], ids=["few modules", "many modules"])
def test_garbage_of_what_a_test_starts_is_collected_when_it_ends(loads: str) -> None:
    """As with users: what goes wrong when a process ends, tests find."""
    done = subprocess.run(
        [sys.executable, "-c", CYCLE.format(loads=loads)],
        cwd=ROOT,
        env={"PYTHONPATH": started.PATH},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "collected\n"
