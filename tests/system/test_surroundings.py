"""Where commands are started: folders with files of any name, without root, with root."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hostlib.launch import command_line
from ina.cli.command import FAILED
from ina.cli.errors import verdict
from ina.errors import ProcessFailed
from ina.run.launch.agents import Agents, LaunchedAgent
from ina.run.launch.server_process import ServerProcess
from ina.run.launch.spec import FabricSpec
from ina.run.switches.fabric import control
from ina.run.switches.switch_process import EmbeddedSwitch
from tests import started
from tests.system.attached import open_switch
from tests.system.command import PATIENT, ROOT, finish, ina, start, until, worker

# --------------------------------------------------------------------- what a run finds around it whe


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


def test_ranks_on_other_machines_find_the_folder_of_the_run_as_their_own(tmp_path: Path) -> None:
    """They worked in it, and PWD named the one in which ssh had started them."""
    agent, said = LaunchedAgent("h1", command_line.module("ina.run.launch.agent")), []
    agent.on_output = lambda *output: said.append(output)
    shows = [sys.executable, "-c", "import os; print(os.environ['PWD'])"]
    with Agents({"h1": agent}) as agents:
        agents.ready()
        order = {"command": shows, "folder": str(tmp_path), "variables": [{}], "inherited": None}
        agent.say({"start": order})
        until(lambda: agent.left_running is not None or agent.ended())
    assert said == [(0, f"{tmp_path}\n".encode(), False)], agent.failed


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


@pytest.mark.parametrize(
    ("package", "lost", "advice"),
    [
        # as `pip install p4runtime-shell` leaves it in the environment of `ina`
        ("google.protobuf", "runtime_version.py", "run 'pip install --upgrade protobuf'"),
        ("p4", "v1/p4runtime_pb2.py", "this command needs p4: pip install 'ina' ("),
    ],
)
def test_a_package_that_lacks_a_part_is_named_with_what_mends_it(
    tmp_path: Path, package: str, lost: str, advice: str
) -> None:
    copied = tmp_path / package.replace(".", "/")
    shutil.copytree(*importlib.import_module(package).__path__, copied)
    (copied / lost).unlink()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ina", "switch", "--port", "1=udp:27001:28001"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{started.PATH}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == FAILED
    assert advice in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_fails_also_where_sigchld_is_ignored() -> None:
    """As under some supervisors: the kernel then keeps no status of what ended."""
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        " os.execvp(sys.argv[1], sys.argv[1:])"
    )
    run = start(*RUN, "--", "sh", "-c", "exit 3", before=[sys.executable, "-c", ignoring])
    _, errors = finish(run, 1)
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


# --------------------------------------------------------------------- commands that only root can ca


AS_SOMEBODY = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def why_not() -> str:
    """Return why nobody else can be played here; "": it can."""
    try:
        done = subprocess.run([*AS_SOMEBODY, "true"], capture_output=True, text=True)
    except FileNotFoundError:
        return "no unshare command"
    return done.stderr.strip()


as_somebody = pytest.mark.skipif(bool(why_not()), reason=why_not())


def ina_as_somebody(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``ina arguments…`` as user 1000, with the programs of a folder and no others."""
    variables = (f"PATH={folder}", f"HOME={folder}", "INA_TESTBEDS=/nowhere", "NO_COLOR=1")
    variables += (f"PYTHONPATH={started.PATH}",)
    somebody = (str(shutil.which(AS_SOMEBODY[0])), *AS_SOMEBODY[1:])
    return subprocess.run(
        ["/usr/bin/env", "-i", *variables, *somebody, sys.executable, "-P", "-m", "ina", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@as_somebody
@pytest.mark.parametrize(
    "command", [("topo", "up", "two-racks:1", "--name", "a b"), ("topo", "run", "dumbbell", "--", "true")]
)
def test_the_same_command_is_run_by_sudo(
    tmp_path: Path, write_file: Callable[[str, str], Path], command: tuple[str, ...]
) -> None:
    sudo = write_file("sudo", '#!/bin/sh\nfor word; do echo "<$word>"; done\nexit 7\n')
    sudo.chmod(0o755)
    done = ina_as_somebody(tmp_path, *command)
    words = done.stdout.replace("<", "").replace(">", "").splitlines()
    assert done.returncode == 7, done.stderr
    assert words[:2] == ["--", "env"]
    assert "INA_TESTBEDS=/nowhere" in words
    assert f"PATH={tmp_path}:/usr/local/sbin:/usr/sbin:/sbin" in words
    assert words[-len(command) - 4 :] == [sys.executable, "-P", "-m", "ina", *command]
    assert "network namespaces need root" in done.stderr
    assert "going on with sudo" in done.stderr


@as_somebody
def test_without_sudo_the_command_for_root_is_given(tmp_path: Path) -> None:
    done = ina_as_somebody(tmp_path, "topo", "up", "two-racks:1")
    assert done.returncode == 1
    assert "There is no sudo here; as root, run env" in done.stderr
    assert done.stderr.rstrip().endswith("-P -m ina topo up two-racks:1")


@as_somebody
def test_what_needs_no_root_does_not_ask_for_it(tmp_path: Path) -> None:
    done = ina_as_somebody(tmp_path, "topo", "up", "two-racks:1", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "sudo" not in done.stderr
