"""The service on a testbed of namespaces: its daemon is killed at every step, and so is all around it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import testbed
from bmv2_topos.testbeds.netns.forwarding import entries
from bmv2_topos.testbeds.netns.serving import start_switch
from controller import Fleet
from controller.vocabulary import Region
from ina.runtime.testbed_fabric import program_of
from ina.service.client import Client, Refused
from ina.service.faults import POINTS, VARIABLE
from ina.service.files import process_of
from ina.service.network import Network
from ina.service.wiring import Wiring
from tests import effort, started
from tests.system.command import ROOT, WORKERS, family, ina
from tests.system.test_testbeds import PREFIX, needs_namespaces

RARE = ("granted", "frozen", "log removed", "asked to end")
REACHED = [point for point in POINTS if point not in RARE]
"""Fault points that a short life reaches.

Workers are told of a grant when memory is divided again, a snapshot needs thousands of events, a log is
removed with a job that is forgotten, and only jobs whose workers somebody else starts are asked to end: tests
of their own have such lives.
"""
CLUSTER = ROOT / "examples" / "cluster" / "two.toml"
BED = f"{PREFIX}service"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[netns.State]:
    with pytest.MonkeyPatch.context() as patch, family():
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        done = ina("topo", "up", CLUSTER, "--name", BED, "--program", "shared")
        assert done.returncode == 0, done.stderr
        try:
            yield netns.find(BED)
        finally:
            ina("topo", "down", BED)


def jobs_file(folder: Path, name: str, *, more: str = "") -> Path:
    """Two jobs: one whose servers are at two switches, and one that the policies place."""
    marks = f"{sys.executable} {WORKERS / 'marks.py'} {folder}"
    path = folder / f"{name}.toml"
    path.write_text(f"""
[[job]]
name = "{name}-far"
workers = 2
servers = ["left1", "right1"]
command = "{marks}/{name}-far {more}"

[[job]]
name = "{name}-near"
workers = 2
command = "{marks}/{name}-near {more}"
""")
    return path


def daemon(
    state: Path,
    jobs: Path,
    *,
    at: str = BED,
    memory: str = "shared",
    scheduler: str = "fifo",
    **variables: str,
) -> subprocess.Popen[str]:
    driver = [sys.executable, "-m", "tests.system.service_driver"]
    command = [*driver, str(state), at, str(jobs), memory, scheduler]
    environment = {**os.environ, "PYTHONPATH": started.PATH, **variables}
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate()
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def until(holds: Callable[[], object], within_s: float = 300.0) -> None:
    give_up = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up, f"not within {within_s} s"
        time.sleep(0.02)


@needs_namespaces
def test_the_daemon_may_be_killed_between_any_two_steps(bed: netns.State, tmp_path: Path) -> None:
    """Jobs are done once, nothing stays on a switch, and no folder of a run.

    At some points only: `tests/ina/service/test_fault_points.py` tries all in virtual time.
    """
    state = tmp_path / "state"
    for point in effort.some(REACHED, every=3):
        name = point.replace(" ", "-")
        jobs = jobs_file(tmp_path, name)
        if point.startswith("stray"):
            stray = state / "runs" / "99"
            stray.mkdir(parents=True)
            (stray / "run.json").write_text("{}")
        first = daemon(state, jobs, **{VARIABLE: f"{point}:1"})
        first.communicate()
        assert first.returncode == -signal.SIGKILL, point
        found = ended(daemon(state, jobs))
        for job in (f"{name}-far", f"{name}-near"):
            assert found["jobs"][job]["state"] == "completed", (point, found)
            assert (tmp_path / job).read_text() == "x", point
        assert found["audit"] == [], point
    assert list((state / "runs").iterdir()) == []
    with testbed.controllers(bed) as at:
        assert Fleet(at).read() == {}


@needs_namespaces
def test_commands_get_listed_variables_of_the_controllers_environment_and_no_others(
    bed: netns.State, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[[job]]\nname = "reads"\nworkers = 1\ncommand = "env"\n')
    secrets = {"INA_TOKEN": "t" * 32, "INA_CONTROLLER_TOKEN": "c" * 32, "AWS_SECRET_ACCESS_KEY": "key"}
    found = ended(daemon(tmp_path / "state", jobs, **secrets, NCCL_DEBUG="INFO", HF_HOME="/models"))
    assert found["jobs"]["reads"]["state"] == "completed", found
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


@needs_namespaces
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
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(f'[[job]]\nname = "leaves"\nworkers = 2\ncommand = "{sys.executable} {program}"\n')
    serving = daemon(state, jobs)
    until(lambda: mark.exists() and mark.read_text())
    process = int(mark.read_text())
    if killed:
        runner = process_of(state / "runs" / "0")
        assert runner is not None
        os.kill(runner, signal.SIGKILL)
    stop.touch()
    found = ended(serving)
    try:
        assert found["jobs"]["leaves"]["state"] == "completed", found
        if killed:
            assert f"this machine: process {process} of run 0, which is over, still runs" in found["audit"]
        else:
            assert found["audit"] == []
            assert not Path(f"/proc/{process}").exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@needs_namespaces
def test_a_job_whose_runner_is_killed_starts_again(bed: netns.State, tmp_path: Path) -> None:
    stop, state = tmp_path / "stop", tmp_path / "state"
    serving = daemon(state, jobs_file(tmp_path, "r", more=f"--until {stop}"))
    until((tmp_path / "r-far.begun").exists)
    runner = process_of(state / "runs" / "0")
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    stop.touch()
    found = ended(serving)
    assert {job: (each["state"], each["starts"]) for job, each in found["jobs"].items()} == {
        "r-far": ("completed", 2),
        "r-near": ("completed", 1),
    }
    assert (tmp_path / "r-far").read_text() == "x"
    assert found["audit"] == []


@needs_namespaces
def test_a_second_controller_is_refused_while_the_first_ones_job_runs_unless_it_takes_over(
    bed: netns.State, tmp_path: Path
) -> None:
    """It took the job off the switches, and said that all was as intended."""
    stop = tmp_path / "stop"
    first = daemon(tmp_path / "one", jobs_file(tmp_path, "own", more=f"--until {stop}"))
    until((tmp_path / "own-far.begun").exists)
    words = [sys.executable, "-m", "ina", "controller", "--testbed", BED, "--state", str(tmp_path / "two")]
    words += ["--listen", f"unix:{tmp_path / 'api'}"]
    second = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert second.returncode == 1, second
    assert f"the controller with process {first.pid} on {socket.gethostname()}" in second.stderr
    assert f"--state {tmp_path / 'one'}" in second.stderr
    assert "--take-over" in second.stderr
    with testbed.controllers(bed) as at:
        there = [name for tree in Fleet(at).read().values() for name in tree.switches]
        assert there, "the job is where it was"
        with subprocess.Popen([*words, "--take-over"], cwd=ROOT, stderr=subprocess.DEVNULL) as third:
            until(lambda: not Fleet(at).read())
            third.terminate()
    first.kill()
    first.communicate()
    runners = [process_of(each) for each in (tmp_path / "one" / "runs").iterdir()]
    for runner in filter(None, runners):
        os.kill(runner, signal.SIGTERM)
    until(lambda: not any(map(process_of, (tmp_path / "one" / "runs").iterdir())))


@needs_namespaces
def test_ordinary_traffic_passes_a_switch_that_was_started_again_with_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was there to be loaded, and no job of it missing: its workers could not meet any more."""
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path))
    name = f"{BED}-again"
    done = ina("topo", "up", CLUSTER, "--name", name, "--program", "shared")
    assert done.returncode == 0, done.stderr
    try:
        own = netns.find(name)
        with testbed.controllers(own) as at:
            wiring = Wiring.of(own.topology)
            network = Network(lambda switch, _: at[switch], program_of(own))
            network.reconcile([], wiring)
            os.kill(own.switches["s1"], signal.SIGKILL)
            until(lambda: "s1" in network.reconcile([], wiring).left_out)
            with start_switch(testbed._switch_commands(own)["s1"].argv, own.log("s1")) as again:
                try:
                    until(lambda: not network.reconcile([], wiring).left_out)
                    assert at["s1"].adjust(entries(own.topology, "s1")) == 0
                finally:
                    again.kill()
    finally:
        ina("topo", "down", name)


@needs_namespaces
def test_memory_is_divided_again_under_jobs_that_run(bed: netns.State, tmp_path: Path) -> None:
    """A job shares all slots, loses some to one with a deadline, and gets them back; its sums are exact.

    The daemon is killed when it has told the workers how many packets they may have in flight.
    """
    stop = tmp_path / "stop"
    worker = f"{sys.executable} {WORKERS / 'marks.py'} {tmp_path}"
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(f"""
[[job]]
name = "shares"
workers = 2
servers = ["left1", "right1"]
command = "{worker}/shares --until {stop}"

[[job]]
name = "urgent"
arrival_s = 2.0
workers = 2
servers = ["left2", "right2"]
command = "{worker}/urgent --sums 300"
iterations = 300
model_bytes = 20000
deadline_s = 60
""")
    first = daemon(tmp_path / "state", jobs, memory="deadline", **{VARIABLE: "granted:1"})
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    serving = daemon(tmp_path / "state", jobs, memory="deadline")
    until((tmp_path / "urgent").exists)
    everything = Region(0, bed.topology.switches[0].slots)
    with testbed.controllers(bed) as at:
        until(lambda: _regions(Fleet(at)) == [everything])  # it goes on in the slots that it got back
    stop.touch()
    found = ended(serving)
    assert {job: each["state"] for job, each in found["jobs"].items()} == {
        "shares": "completed",
        "urgent": "completed",
    }
    slots = [text for event, jobs, text in found["decisions"] if event == "memory" and jobs == ["shares"]]
    assert slots[0] == slots[-1], slots
    assert {*slots[1:-1]} - {slots[0]}, slots  # divided once, and again on a machine so slow that time passes
    assert found["audit"] == []


def _regions(fleet: Fleet) -> list[Region | None]:
    """Return the slots of each job on each switch where it is summed, None while they are being changed."""
    admissions = [each for tree in fleet.read().values() for each in tree.switches.values()]
    return [each.region if each.change is None else None for each in admissions if not each.transit]


@dataclass(slots=True)
class Command:
    """``ina controller`` on the testbed, which forgets jobs as soon as two are over."""

    folder: Path

    @property
    def url(self) -> str:
        return f"unix:{self.folder / 'api'}"

    @contextlib.contextmanager
    def serving(self, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        words = [sys.executable, "-m", "ina", "controller", "--state", str(self.folder / "state")]
        words += ["--testbed", BED, "--listen", self.url, "--keep-jobs", "0"]
        log = self.folder / "controller.log"
        with (
            log.open("ab") as out,
            subprocess.Popen(
                words, cwd=ROOT, env={**os.environ, **variables}, stdout=out, stderr=out
            ) as process,
        ):
            try:
                until(lambda: process.poll() is not None or self.answers())
                assert process.returncode is None, log.read_text()
                yield process
            except BaseException:
                print(log.read_text())
                raise
            finally:
                process.kill()

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:  # httpx leaves one open that is refused
            if probe.connect_ex(str(self.folder / "api")):
                return False
        with contextlib.suppress(Refused), Client(self.url) as client:
            client.cluster()
            return True
        return False  # not yet

    def dies(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(300) == -signal.SIGKILL


@needs_namespaces
def test_the_daemon_may_be_killed_when_it_has_asked_workers_of_others_to_end(
    bed: netns.State, tmp_path: Path
) -> None:
    command, machines = Command(tmp_path), [(["left1"], [0]), (["right1"], [1])]
    with command.serving(**{VARIABLE: "asked to end:1"}) as process, Client(command.url) as client:
        client.admit("others", machines, "what only its holder knows")
        until(lambda: client.renew("others")["job"]["state"] == "running")
        client.cancel("others")
        command.dies(process)
    with command.serving(), Client(command.url) as client:
        assert client.renew("others")["stop"] == "by its owner"
        client.leave("others", "told to end")
        until(lambda: client.job("others")["over"] and client.audit()["clean"])
        assert client.job("others")["state"] == "cancelled"
        until(lambda: not [*(tmp_path / "state" / "external").iterdir()])
    with testbed.controllers(bed) as at:
        assert Fleet(at).read() == {}


@needs_namespaces
def test_the_daemon_may_be_killed_when_it_has_removed_a_log(bed: netns.State, tmp_path: Path) -> None:
    command, logs = Command(tmp_path), tmp_path / "state" / "logs"
    with command.serving(**{VARIABLE: "log removed:1"}) as process, Client(command.url) as client:
        client.submit([{"name": name, "workers": 1, "command": "true"} for name in ("one", "two")])
        command.dies(process)
    assert len([*logs.iterdir()]) == 1, "two are removed, one after the other"
    with command.serving(), Client(command.url) as client:
        until(lambda: not [*logs.iterdir()])
        assert client.jobs() == []
        assert [client.job(name)["state"] for name in ("one", "two")] == ["completed"] * 2, "in the archive"
        assert client.audit()["clean"]


@needs_namespaces
def test_a_lost_state_is_refused_while_its_job_runs_and_a_backup_finds_the_job_again(
    bed: netns.State, tmp_path: Path
) -> None:
    """An empty file was taken for a new state: "no jobs", and the job was taken off its switches."""
    command, stop, mark = Command(tmp_path), tmp_path / "stop", tmp_path / "kept"
    state, backup = tmp_path / "state", tmp_path / "backup"
    words = [sys.executable, str(WORKERS / "marks.py"), str(mark), "--until", str(stop)]
    job = {"name": "kept", "workers": 2, "servers": ["left1", "right1"], "command": words}
    with command.serving() as process, Client(command.url) as client:
        client.submit([job])
        until(lambda: client.job("kept")["state"] == "running")
        assert ina("controller", "backup", backup, "--state", state).returncode == 0
        refused = ina("controller", "restore", backup, "--state", state)
        assert (refused.returncode, f"process {process.pid} uses" in refused.stderr) == (1, True)
        process.kill()
        process.wait()
    (state / "state.sqlite").write_bytes(b"")
    (state / "state.sqlite-wal").unlink()
    started_again = [sys.executable, "-m", "ina", "controller", "--state", str(state), "--testbed", BED]
    again = subprocess.run(started_again, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert again.returncode == 1
    assert "state.sqlite is empty" in again.stderr
    assert "runs 0 are there" in again.stderr
    assert f"ina controller restore BACKUP --state {state}" in again.stderr
    restored = ina("controller", "restore", backup, "--state", state)
    assert restored.returncode == 0, restored.stderr
    with command.serving(), Client(command.url) as client:
        assert (client.job("kept")["state"], client.job("kept")["starts"]) == ("running", 1)
        assert client.audit()["clean"]
        stop.touch()
        until(lambda: client.job("kept")["over"])
        assert client.job("kept")["state"] == "completed"
        with testbed.controllers(bed) as at:
            until(lambda: Fleet(at).read() == {})
    assert mark.read_text() == "x"


@needs_namespaces
def test_what_runs_is_ended_when_its_state_is_forgotten(bed: netns.State, tmp_path: Path) -> None:
    command, state = Command(tmp_path), tmp_path / "state"
    words = [
        sys.executable,
        str(WORKERS / "marks.py"),
        str(tmp_path / "m"),
        "--until",
        str(tmp_path / "never"),
    ]
    job = {"name": "left", "workers": 2, "servers": ["left1", "right1"], "command": words}
    with command.serving() as process, Client(command.url) as client:
        client.submit([job])
        until(lambda: client.job("left")["state"] == "running" and process_of(state / "runs" / "0"))
        process.kill()
        process.wait()
    for each in state.glob("state.sqlite*"):
        each.unlink()
    runner = process_of(state / "runs" / "0")
    assert runner is not None
    done = ina("controller", "forget", "--state", state)
    assert (done.returncode, "1 run ended" in done.stderr) == (0, True), done.stderr
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        assert not Path(f"/proc/{runner}/cmdline").read_bytes(), "at most a zombie is left"
    with command.serving(), Client(command.url) as client:
        assert client.jobs() == []
        until(lambda: client.audit()["clean"])
    with testbed.controllers(bed) as at:
        assert Fleet(at).read() == {}


@needs_namespaces
def test_the_command_reads_its_policy_file_again_on_sighup(bed: netns.State, tmp_path: Path) -> None:
    policies = tmp_path / "policies.toml"
    policies.write_text('scheduler = "fifo"\n')
    command = [
        sys.executable,
        "-m",
        "ina",
        "controller",
        "--state",
        str(tmp_path / "state"),
        "--testbed",
        BED,
    ]
    options = ["--listen", "127.0.0.1:0", "--policies", str(policies)]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as serving:
        try:
            assert serving.stdout is not None
            url = next(line for line in serving.stdout if "controller at" in line).split()[-1]

            def scheduler() -> str:
                with urllib.request.urlopen(f"{url}/v1/cluster") as answer:
                    found: str = json.load(answer)["policies"]["scheduler"]
                    return found

            def ready() -> bool:
                with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(f"{url}/readyz"):
                    return True
                return False

            until(ready)
            assert scheduler() == "fifo"
            policies.write_text('scheduler = "srsf"\n')
            serving.send_signal(signal.SIGHUP)
            until(lambda: scheduler() == "srsf")
            policies.write_text('scheduler = "nobody"\n')
            serving.send_signal(signal.SIGHUP)
            assert any("'nobody' is unknown" in line for line in serving.stdout)
            assert scheduler() == "srsf"
        finally:
            serving.terminate()
            serving.communicate()


@needs_namespaces
def test_a_switch_that_is_started_again_is_programmed_again_and_its_job_goes_on(
    bed: netns.State, tmp_path: Path
) -> None:
    """The last one: the testbed has no such switch afterwards.

    The switch is waited for: after 3 s its job would start again, and Python may take longer to start.
    """
    stop = tmp_path / "stop"
    jobs = jobs_file(tmp_path, "s", more=f"--until {stop}")
    serving = daemon(tmp_path / "state", jobs, GONE_S="300")
    until((tmp_path / "s-far.begun").exists)
    (switch,) = subprocess.run(
        ["pgrep", "-o", "-f", str(bed.socket("s1"))], capture_output=True, text=True
    ).stdout.split()
    os.kill(int(switch), signal.SIGKILL)
    with start_switch(testbed._switch_commands(bed)["s1"].argv, bed.log("s1")) as again:
        stop.touch()
        found = ended(serving)
        again.kill()
    assert {job: each["state"] for job, each in found["jobs"].items()} == {
        "s-far": "completed",
        "s-near": "completed",
    }
    assert found["jobs"]["s-far"]["starts"] == 1, "it was not restarted"
    assert found["audit"] == []


@needs_namespaces
def test_a_job_that_has_ended_well_is_done_although_its_server_is_drained_then(
    bed: netns.State, tmp_path: Path
) -> None:
    """What its worker leaves running is waited for, for two seconds: the drain falls in these."""
    mark, state = tmp_path / "mark", tmp_path / "state"
    program = tmp_path / "ends.py"
    program.write_text(
        "import os, subprocess\n"
        "subprocess.Popen(['sleep', '600'])\n"
        f"with open({str(mark)!r}, 'a') as file: file.write(f'{{os.getpid()}} ')\n"
    )
    url = f"unix:{tmp_path}/api"
    serving = subprocess.Popen(
        [sys.executable, "-m", "ina", "controller", "--state", str(state), "--testbed", BED, "--listen", url],
        env={**os.environ, "PYTHONPATH": started.PATH},
        stderr=subprocess.DEVNULL,
    )
    try:
        with Client(url) as client:
            until((tmp_path / "api").exists)
            until(lambda: _submitted(client, [sys.executable, str(program)]))
            until(lambda: mark.exists() and mark.read_text().endswith(" "))
            process = int(mark.read_text())
            until(lambda: _ended(process))
            client.drain(client.job("ends")["servers"][0])
            until(lambda: client.job("ends")["over"])
            assert client.job("ends")["state"] == "completed"
        assert mark.read_text() == f"{process} ", "it ran once"
    finally:
        serving.terminate()
        serving.wait()


def _submitted(client: Client, command: list[str]) -> bool:
    try:
        client.submit([{"name": "ends", "workers": 1, "command": command}], key="once")
    except Refused:  # it starts
        return False
    return True


def _ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
