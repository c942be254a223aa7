"""What tests start heeds signals and ends with its test; what makes processes ready in less time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import started
from tests.system.command import ROOT, family, relatives, start

# --------------------------------------------------------------------- what tests start heeds signals


LEAVES_EVERYTHING = """
import os
from pathlib import Path
from tests.system.command import FAMILY, relatives, start, worker

def test_that_fails_while_all_is_running():
    process = start("run", "--program", "shared", "--tree", "2x2", "--lanes", 32, *worker("sums.py"))
    assert all("started" in process.stdout.readline() for _ in range(4))
    name = os.environ[FAMILY].split()[-1]
    Path({found!r}).write_text(f"{{name}} {{len(relatives(name))}}")
    assert False, "on purpose"
"""


def pytest_from_the_background(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run tests as a shell without job control does behind an ``&``, or nohup: signals are ignored."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, arguments)]
    return subprocess.run(
        ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_tests_of_interrupts_pass_where_interrupts_are_ignored() -> None:
    interrupted = "test_an_ended_run_takes_along[all its switches and its fallback server]"
    done = pytest_from_the_background(
        *(f"tests/system/test_launch.py::{interrupted}", "tests/softswitch/test_daemon.py"),
        *("-k", "ended_run or ends_at_a_signal"),
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r" [4-9] passed", done.stdout)


def test_what_a_failed_test_has_started_is_ended(tmp_path: Path) -> None:
    """Three switches, a fallback server, four workers, their keeper and their parent."""
    found, file = tmp_path / "found", tmp_path / "test_leaves.py"
    file.write_text(LEAVES_EVERYTHING.format(found=str(found)))
    done = pytest_from_the_background("-c", ROOT / "pyproject.toml", "-p", "tests.system.conftest", file)
    assert "on purpose" in done.stdout
    name, count = found.read_text().split()
    assert int(count) == 10
    assert relatives(name) == []


def test_a_family_holds_who_has_left_its_parent() -> None:
    with family() as name:
        daemon = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"
        done = subprocess.run(["sh", "-c", daemon], capture_output=True, text=True, check=True)
        assert int(done.stdout) in relatives(name)
    assert relatives(name) == []


def test_a_family_holds_who_is_becoming_another_program(tmp_path: Path) -> None:
    """For a moment of each exec a process shows no environment: found by a slow machine."""
    script = tmp_path / "for_ever.sh"
    script.write_text('exec sh "$0"')
    with family() as name:
        busy = subprocess.Popen(["sh", script])
        seen = [relatives(name) for _ in range(100)]
    busy.wait()
    assert seen == [[busy.pid]] * 100
    assert relatives(name) == []


def test_a_process_without_any_environment_is_of_no_family() -> None:
    bare = subprocess.Popen(["sleep", "1000"], env={})
    with family() as name:
        assert relatives(name) == []
    bare.kill()
    bare.wait()


# --------------------------------------------------------------------- what makes processes ready in


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
