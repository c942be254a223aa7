"""What a run finds around it where it is started: streams that are closed, a folder that others write to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ina.cli.errors import FAILED, verdict
from ina.runtime.errors import ProcessFailed
from ina.runtime.fabric import control
from ina.runtime.server_process import ServerProcess
from ina.runtime.spec import FabricSpec
from ina.runtime.switch_process import EmbeddedSwitch
from tests import started
from tests.system.attached import open_switch
from tests.system.command import PATIENT, ina, start, worker

RUN = ("run", "-np", 2, "--lanes", 32, *PATIENT)


def ina_in(folder: Path, arguments: Sequence[object], closed: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``ina arguments…`` in a folder as the installed command does, which looks for no modules there."""
    command = [sys.executable, "-P", "-m", "ina", *map(str, arguments)]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": started.PATH},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_web_proxy_is_not_asked_for_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many machines name one for everything, and it would see, and could change, what controls the switch."""
    for variable in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # where nobody listens
    for variable in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with open_switch("--program", "exclusive", "--lanes", 32) as attached:
        done = ina("slots", *attached.options[:2])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"], ids=["0", "1", "2", "all"])
def test_closed_streams_are_no_matter(tmp_path: Path, closed: str) -> None:
    done = ina_in(tmp_path, [*RUN, *worker("exact.py", 100)], closed)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    """Another terminal has made it anew, say: `cd .` helps, and nothing else tells.

    Files are looked for by their folders where a program is compiled the first time.
    """
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-P", "-m", "ina", *map(str, RUN), "true"]
    env = {**os.environ, "PYTHONPATH": started.PATH, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == FAILED
    assert "the current directory no longer exists: change to another one" in done.stderr


def test_a_worker_fails_also_where_sigchld_is_ignored() -> None:
    """As under some supervisors: the kernel then keeps no status of what ended."""
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        " os.execvp(sys.argv[1], sys.argv[1:])"
    )
    run = start(*RUN, "--", "sh", "-c", "exit 3", before=[sys.executable, "-c", ignoring])
    _, errors = run.communicate()
    assert run.returncode == 1, errors
    assert "exited with status 3" in errors


def test_no_module_is_taken_from_the_folder_in_which_a_run_is_started(tmp_path: Path) -> None:
    """In /tmp, say, anybody could have put it there."""
    for name in ("signal.py", "json.py", "numpy.py", "controller/__init__.py", "hostlib/__init__.py"):
        planted = tmp_path / name
        planted.parent.mkdir(exist_ok=True)
        planted.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    done = ina_in(tmp_path, [*RUN, "--program", "shared", *worker("exact.py", 100)])
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()


def test_a_switch_process_that_is_killed_as_it_starts_is_a_failure_with_its_reason() -> None:
    """Its status, -9, is no exit code of ours."""
    with ServerProcess("switch", "the switch process", ["--p4runtime", "unix", "--until-eof"]) as child:
        os.kill(child._process.pid, signal.SIGKILL)
        with pytest.raises(
            ProcessFailed, match="the switch process was killed by SIGKILL before it was ready"
        ) as caught:
            child.ready()
    assert verdict(caught.value)[1] == FAILED


def test_a_switch_process_that_is_killed_before_it_is_controlled_is_told_by_its_end() -> None:
    """Not by the deadline that the connection to its socket passed."""
    with EmbeddedSwitch(["--port", "1=memory"]) as switch:
        switch.ready()
        os.kill(switch._process.pid, signal.SIGKILL)
        switch._process.wait()
        with pytest.raises(ProcessFailed, match="the switch process was killed by SIGKILL"):
            control(switch, FabricSpec())
