"""The service on a testbed of namespaces: its daemon is killed at every step, and so is all around it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import testbed
from bmv2_topos.testbeds.netns.forwarding import entries
from bmv2_topos.testbeds.netns.serving import start_switch
from controller import Fleet
from controller.vocabulary import Region
from ina.faults import POINTS, VARIABLE
from ina.launch.files import process_of
from ina.service.client import Client
from ina.service.network import Network
from ina.service.wiring import Wiring
from ina.switches.testbeds import program_of
from tests import effort
from tests.system.clusters import NETNS
from tests.system.command import ROOT, ended, ina, runs, until
from tests.system.controllers import PREFIX, Controller, became, daemon, jobs_file, laid_out, marks

pytestmark = NETNS
RARE = ("granted", "frozen", "log removed", "asked to end")
REACHED = [point for point in POINTS if point not in RARE]
"""Fault points that a short life reaches.

Workers are told of a grant when memory is divided again, a snapshot needs thousands of events, a log is
removed with a job that is forgotten, and only jobs whose workers somebody else starts are asked to end: tests
of their own have such lives.
"""
BED = f"{PREFIX}service"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[netns.State]:
    with laid_out(tmp_path_factory.mktemp("testbeds"), BED) as up:
        yield up


@pytest.fixture
def command(bed: netns.State, tmp_path: Path) -> Controller:
    """``ina controller`` on the testbed, which forgets jobs as soon as they are over."""
    return Controller(tmp_path, ["--testbed", BED, "--keep-jobs", "0"])


def two_jobs(folder: Path, name: str, *options: object) -> Path:
    """Write two jobs: one whose servers are at two switches, and one that the policies place."""
    far, near = f"{name}-far", f"{name}-near"
    return jobs_file(
        folder / f"{name}.toml",
        {"name": far, "servers": ["left1", "right1"], "command": marks(folder / far, *options)},
        {"name": near, "command": marks(folder / near, *options)},
    )


def ends(found: dict[str, dict[str, dict[str, object]]]) -> dict[str, tuple[object, object]]:
    """Return state and starts of each job of a daemon; nothing may be wrong then."""
    assert found["audit"] == []
    return {job: (each["state"], each["starts"]) for job, each in found["jobs"].items()}


def left_on_switches(bed: netns.State) -> dict[int, object]:
    with testbed.controllers(bed) as at:
        return {**Fleet(at).read()}


def running(state: Path) -> list[int]:
    """Return the processes of all runs of a state."""
    return [*filter(None, map(process_of, (state / "runs").iterdir()))]


def test_the_daemon_may_be_killed_between_any_two_steps(bed: netns.State, tmp_path: Path) -> None:
    """Jobs are done once, nothing stays on a switch, and no folder of a run.

    At some points only: `tests/ina/service/test_fault_points.py` tries all in virtual time.
    """
    state = tmp_path / "state"
    for point in effort.some(REACHED, every=3):
        name = point.replace(" ", "-")
        jobs = two_jobs(tmp_path, name)
        if point.startswith("stray"):
            stray = state / "runs" / "99"
            stray.mkdir(parents=True)
            (stray / "run.json").write_text("{}")
        first = daemon(state, jobs, at=BED, **{VARIABLE: f"{point}:1"})
        first.communicate()
        assert first.returncode == -signal.SIGKILL, point
        found = became(daemon(state, jobs, at=BED))
        for job in (f"{name}-far", f"{name}-near"):
            assert found["jobs"][job]["state"] == "completed", (point, found)
            assert (tmp_path / job).read_text() == "x", point
        assert found["audit"] == [], point
    assert list((state / "runs").iterdir()) == []
    assert left_on_switches(bed) == {}


def test_commands_get_listed_variables_of_the_controllers_environment_and_no_others(
    bed: netns.State, tmp_path: Path
) -> None:
    jobs = jobs_file(tmp_path / "jobs.toml", {"name": "reads", "workers": 1, "command": "env"})
    secrets = {"INA_TOKEN": "t" * 32, "INA_CONTROLLER_TOKEN": "c" * 32, "AWS_SECRET_ACCESS_KEY": "key"}
    own = {**secrets, "NCCL_DEBUG": "INFO", "HF_HOME": "/models"}
    assert ends(became(daemon(tmp_path / "state", jobs, at=BED, **own))) == {"reads": ("completed", 1)}
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
    job = {"name": "leaves", "command": [sys.executable, str(program)]}
    serving = daemon(state, jobs_file(tmp_path / "jobs.toml", job), at=BED)
    process = int(until(lambda: mark.exists() and mark.read_text()) or 0)
    if killed:
        os.kill(running(state)[0], signal.SIGKILL)
    stop.touch()
    found = became(serving)
    try:
        assert found["jobs"]["leaves"]["state"] == "completed", found
        if killed:
            assert f"this machine: process {process} of run 0, which is over, still runs" in found["audit"]
        else:
            assert found["audit"] == []
            assert not runs(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def test_a_job_whose_runner_is_killed_starts_again(bed: netns.State, tmp_path: Path) -> None:
    stop, state = tmp_path / "stop", tmp_path / "state"
    serving = daemon(state, two_jobs(tmp_path, "r", "--until", stop), at=BED)
    until((tmp_path / "r-far.begun").exists)
    runner = process_of(state / "runs" / "0")
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    stop.touch()
    assert ends(became(serving)) == {"r-far": ("completed", 2), "r-near": ("completed", 1)}
    assert (tmp_path / "r-far").read_text() == "x"


def test_a_second_controller_is_refused_while_the_first_ones_job_runs_unless_it_takes_over(
    bed: netns.State, tmp_path: Path
) -> None:
    """It took the job off the switches, and said that all was as intended."""
    first = daemon(tmp_path / "state", two_jobs(tmp_path, "own", "--until", tmp_path / "stop"), at=BED)
    until((tmp_path / "own-far.begun").exists)
    (tmp_path / "two").mkdir()
    second = Controller(tmp_path / "two", ["--testbed", BED])
    done = subprocess.run(second.command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done
    assert f"the controller with process {first.pid} on {socket.gethostname()}" in done.stderr
    assert f"--state {tmp_path / 'state'}" in done.stderr
    assert "--take-over" in done.stderr
    assert left_on_switches(bed), "the job is where it was"
    third = Controller(tmp_path / "two", ["--testbed", BED, "--take-over"])
    with third.serving():
        until(lambda: not left_on_switches(bed))
        third.end()
    ended(first, by=signal.SIGKILL)
    for runner in running(tmp_path / "state"):
        os.kill(runner, signal.SIGTERM)
    until(lambda: not running(tmp_path / "state"))


def test_ordinary_traffic_passes_a_switch_that_was_started_again_with_its_program(tmp_path: Path) -> None:
    """Nothing was there to be loaded, and no job of it missing: its workers could not meet any more."""
    with laid_out(tmp_path, f"{BED}-again") as own, testbed.controllers(own) as at:
        wiring = Wiring.of(own.topology)
        network = Network(lambda switch, _: at[switch], program_of(own))
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


def test_memory_is_divided_again_under_jobs_that_run(bed: netns.State, tmp_path: Path) -> None:
    """A job shares all slots, loses some to one with a deadline, and gets them back; its sums are exact.

    The daemon is killed when it has told the workers how many packets they may have in flight.
    """
    stop = tmp_path / "stop"
    shares, urgent = marks(tmp_path / "shares", "--until", stop), marks(tmp_path / "urgent", "--sums", 300)
    needs = {"iterations": 300, "model_bytes": 20_000, "deadline_s": 60, "arrival_s": 2.0}
    jobs = jobs_file(
        tmp_path / "jobs.toml",
        {"name": "shares", "servers": ["left1", "right1"], "command": shares},
        {"name": "urgent", "servers": ["left2", "right2"], "command": urgent, **needs},
    )
    first = daemon(tmp_path / "state", jobs, at=BED, memory="deadline", **{VARIABLE: "granted:1"})
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    serving = daemon(tmp_path / "state", jobs, at=BED, memory="deadline")
    until((tmp_path / "urgent").exists)
    everything = Region(0, bed.topology.switches[0].slots)
    with testbed.controllers(bed) as at:
        until(lambda: _regions(Fleet(at)) == [everything])  # it goes on in the slots that it got back
    stop.touch()
    found = became(serving)
    assert {state for state, _ in ends(found).values()} == {"completed"}
    slots = [text for event, jobs, text in found["decisions"] if event == "memory" and jobs == ["shares"]]
    assert slots[0] == slots[-1], slots
    assert {*slots[1:-1]} - {slots[0]}, slots  # divided once, and again on a machine so slow that time passes


def _regions(fleet: Fleet) -> list[Region | None]:
    """Return the slots of each job on each switch where it is summed, None while they are being changed."""
    admissions = [each for tree in fleet.read().values() for each in tree.switches.values()]
    return [each.region if each.change is None else None for each in admissions if not each.transit]


def dies(command: Controller) -> None:
    assert command.process.wait(300) == -signal.SIGKILL


def test_the_daemon_may_be_killed_when_it_has_asked_workers_of_others_to_end(
    bed: netns.State, command: Controller
) -> None:
    machines: Sequence[tuple[list[str], list[int]]] = [(["left1"], [0]), (["right1"], [1])]
    with command.serving(**{VARIABLE: "asked to end:1"}) as client:
        client.admit("others", machines, "what only its holder knows")
        until(lambda: client.renew("others")["job"]["state"] == "running")
        client.cancel("others")
        dies(command)
    with command.serving() as client:
        assert client.renew("others")["stop"] == "by its owner"
        client.leave("others", "told to end")
        until(lambda: client.job("others")["over"] and client.audit()["clean"])
        assert client.job("others")["state"] == "cancelled"
        until(lambda: not [*(command.state / "external").iterdir()])
    assert left_on_switches(bed) == {}


def test_the_daemon_may_be_killed_when_it_has_removed_a_log(command: Controller) -> None:
    logs = command.state / "logs"
    with command.serving(**{VARIABLE: "log removed:1"}) as client:
        client.submit([{"name": name, "workers": 1, "command": "true"} for name in ("one", "two")])
        dies(command)
    assert len([*logs.iterdir()]) == 1, "two are removed, one after the other"
    with command.serving() as client:
        until(lambda: not [*logs.iterdir()])
        assert client.jobs() == []
        assert [client.job(name)["state"] for name in ("one", "two")] == ["completed"] * 2, "in the archive"
        assert client.audit()["clean"]


FAR = {"servers": ["left1", "right1"]}


def test_a_lost_state_is_refused_while_its_job_runs_and_a_backup_finds_the_job_again(
    bed: netns.State, command: Controller, tmp_path: Path
) -> None:
    """An empty file was taken for a new state: "no jobs", and the job was taken off its switches."""
    state, backup = command.state, tmp_path / "backup"
    with command.serving() as client:
        command.submit("kept", "--until", tmp_path / "stop", **FAR)
        until(lambda: client.job("kept")["state"] == "running")
        assert ina("controller", "backup", backup, "--state", state).returncode == 0
        refused = ina("controller", "restore", backup, "--state", state)
        assert (refused.returncode, f"process {command.pid} uses" in refused.stderr) == (1, True)
    (state / "state.sqlite").write_bytes(b"")
    (state / "state.sqlite-wal").unlink()
    again = subprocess.run(command.command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert again.returncode == 1
    assert "state.sqlite is empty" in again.stderr
    assert "runs 0 are there" in again.stderr
    assert f"ina controller restore BACKUP --state {state}" in again.stderr
    restored = ina("controller", "restore", backup, "--state", state)
    assert restored.returncode == 0, restored.stderr
    with command.serving() as client:
        assert (client.job("kept")["state"], client.job("kept")["starts"]) == ("running", 1)
        assert client.audit()["clean"]
        (tmp_path / "stop").touch()
        until(lambda: client.job("kept")["over"])
        assert client.job("kept")["state"] == "completed"
        until(lambda: left_on_switches(bed) == {})
    assert (tmp_path / "kept").read_text() == "x"


def test_what_runs_is_ended_when_its_state_is_forgotten(
    bed: netns.State, command: Controller, tmp_path: Path
) -> None:
    state = command.state
    with command.serving():
        command.submit("left", "--until", tmp_path / "never", **FAR)
        (runner,) = until(lambda: command.job("left")["state"] == "running" and running(state)) or ()
    for each in state.glob("state.sqlite*"):
        each.unlink()
    done = ina("controller", "forget", "--state", state)
    assert (done.returncode, "1 run ended" in done.stderr) == (0, True), done.stderr
    assert not runs(runner)
    with command.serving() as client:
        assert client.jobs() == []
        until(lambda: client.audit()["clean"])
    assert left_on_switches(bed) == {}


def test_the_command_reads_its_policy_file_again_on_sighup(bed: netns.State, tmp_path: Path) -> None:
    policies = tmp_path / "policies.toml"
    policies.write_text('scheduler = "fifo"\n')
    command = Controller(tmp_path, ["--testbed", BED, "--policies", str(policies)])

    def told(client: Client, text: str) -> str:
        policies.write_text(text)
        os.kill(command.pid, signal.SIGHUP)
        return client.cluster()["policies"]["scheduler"]

    with command.serving() as client:
        assert client.cluster()["policies"]["scheduler"] == "fifo"
        told(client, 'scheduler = "srsf"\n')
        until(lambda: client.cluster()["policies"]["scheduler"] == "srsf")
        told(client, 'scheduler = "nobody"\n')
        until(lambda: "'nobody' is unknown" in (tmp_path / "controller.log").read_text())
        assert client.cluster()["policies"]["scheduler"] == "srsf"


def test_a_switch_that_is_started_again_is_programmed_again_and_its_job_goes_on(
    bed: netns.State, tmp_path: Path
) -> None:
    """The last one: the testbed has no such switch afterwards.

    The switch is waited for: after 3 s its job would start again, and Python may take longer to start.
    """
    stop = tmp_path / "stop"
    serving = daemon(tmp_path / "state", two_jobs(tmp_path, "s", "--until", stop), at=BED, GONE_S="300")
    until((tmp_path / "s-far.begun").exists)
    (switch,) = subprocess.run(
        ["pgrep", "-o", "-f", str(bed.socket("s1"))], capture_output=True, text=True
    ).stdout.split()
    os.kill(int(switch), signal.SIGKILL)
    with start_switch(testbed._switch_commands(bed)["s1"].argv, bed.log("s1")) as again:
        stop.touch()
        found = became(serving)
        again.kill()
    assert ends(found) == {"s-far": ("completed", 1), "s-near": ("completed", 1)}, "it was not restarted"


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
