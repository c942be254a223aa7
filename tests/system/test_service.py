"""``ina controller`` on a testbed of namespaces: what is on its switches, machine and disk beside its jobs.

What its jobs go through is in `test_verbs.py`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import testbed
from bmv2_topos.testbeds.netns.forwarding import entries
from bmv2_topos.testbeds.netns.serving import start_switch
from controller import Fleet
from ina.errors import RunnerGone
from ina.run.client import Refused
from ina.run.launch import executor, files
from ina.run.launch.executor import LocalRuns
from ina.run.launch.files import process_of
from ina.run.network import ClusterNetwork
from ina.run.records import Wiring
from ina.run.switches.testbeds import program_of
from tests.system.clusters import NETNS
from tests.system.command import PATIENCE_S, ROOT, begun, good, here, runs, until
from tests.system.controllers import PREFIX, Controller, laid_out

pytestmark = NETNS
BED = f"{PREFIX}service"
FAR = {"servers": ["left1", "right1"]}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[netns.State]:
    with laid_out(tmp_path_factory.mktemp("testbeds"), BED) as up:
        yield up


@pytest.fixture
def command(bed: netns.State, tmp_path: Path) -> Controller:
    """``ina controller`` on the testbed, which forgets jobs as soon as they are over."""
    return Controller(tmp_path, ["--testbed", BED, "--keep-jobs", "0"])


def left_on_switches(bed: netns.State) -> dict[int, object]:
    with testbed.controllers(bed) as at:
        return {**Fleet(at).read()}


def running(state: Path) -> list[int]:
    """Return the processes of all runs of a state."""
    return [*filter(None, map(process_of, (state / "runs").iterdir()))]


def test_commands_get_listed_variables_of_the_controllers_environment_and_no_others(
    bed: netns.State, tmp_path: Path
) -> None:
    secrets = {"INA_TOKEN": "t" * 32, "INA_CONTROLLER_TOKEN": "c" * 32, "AWS_SECRET_ACCESS_KEY": "key"}
    own = {**secrets, "NCCL_DEBUG": "INFO", "HF_HOME": "/models"}
    with Controller(tmp_path, ["--testbed", BED]).serving(**own) as client:
        client.submit([{"name": "reads", "workers": 1, "command": "env"}])
        until(lambda: client.job("reads")["over"])
    (log,) = (tmp_path / "state" / "logs").rglob("rank-0.log")
    variables = dict(line.partition("=")[::2] for line in log.read_text().splitlines())
    assert not {*secrets, "HF_HOME"} & {*variables}
    assert variables["NCCL_DEBUG"] == "INFO"
    assert {"PATH", "HOME", "RANK", "INA_JOB", "MASTER_ADDR"} <= {*variables}


DAEMON = """
os.setsid()
if os.fork():
    os._exit(0)
with open({mark!r}, "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_daemons_that_a_job_leaves_behind_are_ended_or_named(
    bed: netns.State, tmp_path: Path, killed: bool
) -> None:
    """They are ended with the run; where its process is killed, the audit has them."""
    mark, stop, state = tmp_path / "daemon", tmp_path / "stop", tmp_path / "state"
    program = tmp_path / "leaves.py"
    leaves = DAEMON.format(mark=str(mark))
    program.write_text(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '0' and os.fork() == 0:\n"
        f"    exec({leaves!r})\n"
        f"while not os.path.exists({str(stop)!r}): time.sleep(0.05)\n"
    )
    with Controller(tmp_path, ["--testbed", BED]).serving() as client:
        client.submit([{"name": "leaves", "workers": 2, "command": [sys.executable, str(program)]}])
        process = int(until(lambda: mark.exists() and mark.read_text()) or 0)
        if killed:
            os.kill(running(state)[0], signal.SIGKILL)
        stop.touch()
        until(lambda: client.job("leaves")["over"])
        assert client.job("leaves")["state"] == "completed"
        try:
            if killed:
                what = f"process {process} of run 0, which is over, still runs"
                until(lambda: client.audit()["found"] == [{"where": "this machine", "what": what}])
            else:
                until(lambda: client.audit()["clean"])
                assert not runs(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def test_a_second_controller_is_refused_while_the_first_ones_job_runs_unless_it_takes_over(
    bed: netns.State, tmp_path: Path
) -> None:
    """It took the job off the switches, and said that all was as intended.

    One that could not listen had taken the switches over already; and each left a state behind.
    """
    first = Controller(tmp_path, ["--testbed", BED])
    first.start()
    first.submit("own", "--until", tmp_path / "stop", **FAR)
    first.until(lambda: first.begun("own"))
    (tmp_path / "two").mkdir()
    second = Controller(tmp_path / "two", ["--testbed", BED])
    owner = f"the controller with process {first.pid} on {socket.gethostname()}, --state {tmp_path / 'state'}"
    no_certificate = ["--tls-cert", "README.md", "--tls-key", "README.md", "--take-over"]
    for code, more, why in (
        (1, ["--listen", second.url], rf"{owner} .* --take-over takes the switches"),
        (1, ["--listen", first.url, "--take-over"], "another process listens there"),
        (2, no_certificate, r"README\.md: want a certificate and its key, in PEM"),
    ):
        done = subprocess.run([*second.command, *more], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert re.search(why, done.stderr), done
        assert (done.returncode, second.state.exists()) == (code, False)
        assert left_on_switches(bed), "the job is where it was"
    third = Controller(tmp_path / "two", ["--testbed", BED, "--take-over"])
    with third.serving():
        until(lambda: not left_on_switches(bed))
        third.end()
    first.kill()
    for runner in running(tmp_path / "state"):
        os.kill(runner, signal.SIGTERM)
    until(lambda: not running(tmp_path / "state"))


def test_ordinary_traffic_passes_a_switch_that_was_started_again_with_its_program(tmp_path: Path) -> None:
    """Nothing was there to be loaded, and no job of it missing: its workers could not meet any more."""
    with laid_out(tmp_path, f"{BED}-again") as own, testbed.controllers(own) as at:
        wiring = Wiring.of(own.topology)
        network = ClusterNetwork(lambda switch, _: at[switch], program_of(own))
        network.reconcile([], wiring)
        os.kill(own.switches["s1"], signal.SIGKILL)
        until(lambda: "s1" in network.reconcile([], wiring).left_out)
        with start_switch(testbed._switch_commands(own)["s1"].argv, own.log("s1")) as again:
            try:
                until(lambda: not network.reconcile([], wiring).left_out)
                assert at["s1"].update_entries(entries(own.topology, "s1")) == 0
            finally:
                again.kill()


def test_a_controller_that_waits_takes_over_from_one_that_was_killed(command: Controller) -> None:
    """Its parent has not waited for that one yet: it was taken for one that lives, and owns the switches."""
    command.start()
    before = command.process
    os.kill(before.pid, signal.SIGKILL)
    os.waitid(os.P_PID, before.pid, os.WEXITED | os.WNOWAIT)
    with command.serving():
        assert before.returncode is None, "nobody has waited for it"
    before.wait()


def test_a_lost_state_is_refused_while_its_job_runs_and_a_backup_finds_the_job_again(
    bed: netns.State, command: Controller, tmp_path: Path
) -> None:
    """An empty file was taken for a new state: "no jobs", and the job was taken off its switches."""
    state, backup = command.state, tmp_path / "backup"
    with command.serving() as client:
        command.submit("kept", "--until", tmp_path / "stop", **FAR)
        until(lambda: client.job("kept")["state"] == "running")
        good("controller", "backup", backup, "--state", state)
        refused = here("controller", "restore", backup, "--state", state)
        assert (refused.returncode, f"process {command.pid} uses" in refused.stderr) == (1, True)
    (state / "state.sqlite").write_bytes(b"")
    (state / "state.sqlite-wal").unlink()
    again = subprocess.run(command.command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert again.returncode == 1
    assert "state.sqlite is empty" in again.stderr
    assert "runs 0 are still there" in again.stderr
    assert f"ina controller restore BACKUP --state {state}" in again.stderr
    good("controller", "restore", backup, "--state", state)
    with command.serving() as client:
        assert (client.job("kept")["state"], client.job("kept")["starts"]) == ("running", 1)
        assert client.audit()["clean"]
        (tmp_path / "stop").touch()
        until(lambda: client.job("kept")["over"])
        assert client.job("kept")["state"] == "completed"
        until(lambda: left_on_switches(bed) == {})
    assert (tmp_path / "kept").read_text() == "x"


def test_a_job_that_has_ended_well_is_done_although_its_server_is_drained_then(
    bed: netns.State, tmp_path: Path
) -> None:
    """What its worker leaves running is waited for, for two seconds: the drain falls in these."""
    mark, program = tmp_path / "mark", tmp_path / "ends.py"
    program.write_text(
        "import os, subprocess\n"
        "subprocess.Popen(['sleep', '600'])\n"
        f"with open({str(mark)!r}, 'a') as file: file.write(f'{{os.getpid()}} ')\n"
    )
    with Controller(tmp_path, ["--testbed", BED]).serving() as client:
        client.submit([{"name": "ends", "workers": 1, "command": [sys.executable, str(program)]}])
        process = int(until(lambda: mark.exists() and mark.read_text().partition(" ")[0]) or 0)
        until(lambda: not runs(process))
        client.drain(client.job("ends")["servers"][0])
        until(lambda: client.job("ends")["over"])
        assert client.job("ends")["state"] == "completed"
    assert mark.read_text() == f"{process} ", "it ran once"


@contextlib.contextmanager
def disk(folder: Path, mib: int) -> Iterator[None]:
    """Have a file system of its own at a folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Fill a disk; return the file that does."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (1 << 14, 1):  # the last one: to the end of a page
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def test_on_a_full_disk_jobs_run_on_and_end_once_and_new_ones_are_refused(
    command: Controller, tmp_path: Path
) -> None:
    """Found by the soak: nobody heard of an end, so its job was started again and again, and failed."""
    with disk(command.state, 32), command.serving() as client:
        command.submit("before", "--until", tmp_path / "stop", **FAR)
        until(lambda: command.begun("before"))
        ballast = fill(command.state)
        refused = ""
        while not refused:  # at the end of the last page
            try:
                client.submit([{"name": uuid.uuid4().hex, "workers": 1, "command": "true"}])
            except Refused as error:
                refused = f"{error.status}: {error}"
        assert re.match("503: .*full", refused)
        (tmp_path / "stop").touch()
        until((tmp_path / "before").exists)
        ended_s = time.monotonic()
        while time.monotonic() < ended_s + 3.0:  # a runner that ended would be noticed, and start again
            assert client.job("before")["starts"] == 1
            time.sleep(0.2)
        ballast.unlink()
        until(lambda: client.job("before")["over"])
        assert (client.job("before")["state"], client.job("before")["starts"]) == ("completed", 1)
        until(lambda: not client.jobs(states=["queued", "running"]) and client.audit()["clean"])
    assert (tmp_path / "before").read_text() == "x"


HANGING = """
import signal, sys, time
from pathlib import Path
from ina.run.launch import files
with files.alive(Path(sys.argv[1])):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("lives", flush=True)
    time.sleep(600)
"""


def test_a_runner_that_starts_on_a_full_disk_waits_for_room(tmp_path: Path) -> None:
    """Found by the soak: it ended, four times within a second, and so its job failed."""
    folder = tmp_path / "runs" / "7"
    with disk(folder.parent, 1):
        folder.mkdir()
        ballast = fill(folder.parent)
        command = [sys.executable, "-c", HANGING, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as runner:
            try:
                until((folder / "alive").exists)
                assert files.process_of(folder) is None, "it waits for half a second"
                ballast.unlink()
                begun(runner, word="lives")
                assert files.process_of(folder) == runner.pid
            finally:
                runner.kill()


def test_a_runner_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "STOP_S", 0.5)
    folder = tmp_path / "7"
    folder.mkdir()
    command = [sys.executable, "-c", HANGING, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as runner:
        try:
            begun(runner, word="lives")
            assert files.process_of(folder) == runner.pid
            with contextlib.suppress(RunnerGone):  # the machine is slow: it is tried again
                LocalRuns(tmp_path).stop(7)
            assert runner.wait(PATIENCE_S) == -signal.SIGKILL
            assert not LocalRuns(tmp_path).lives(7)
        finally:
            runner.kill()
