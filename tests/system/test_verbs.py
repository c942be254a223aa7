"""What a job goes through under each launch, with real processes: of a controller, or of one command.

`tests/ina/run/test_verbs.py` has all of it on each store, in virtual time. Launches whose programs are
not installed are left out.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from ina.faults import VARIABLE
from ina.run.client import Client, Unreachable
from ina.run.launch.files import process_of
from tests import effort
from tests.system.cluster_managers import RAY, SLURM
from tests.system.clusters import NETNS, Cluster, arguments
from tests.system.command import PATIENCE_S, WORKERS, until
from tests.system.controllers import Controller, marks
from tests.system.test_cluster_managers import MACHINES, Variables, ray_runs, slurm_runs

pytestmark = NETNS
SHAPE = {"gpus": 6}
FAR = {"servers": ["h1", "h3"]}
"""Servers in two racks: their tree goes over the root."""
OTHER = ["h2", "h4"]
MARKS = bytes(WORKERS / "marks.py")
STEPS = ("ordered", "started", "removed")
"""Some of the fault points that the life of every job reaches."""


@contextlib.contextmanager
def fallback_servers(here: Cluster, folder: Path) -> Iterator[Variables]:
    server = here.serve_fallback()
    yield {}
    server.terminate()  # the next launch's controller starts one of its own there
    server.communicate()


@dataclass(frozen=True)
class Launch:
    """A way in which workers are started.

    Attributes:
        needs: Makes what it needs; gives the variables of its users.
        options: Of the controller.
        there: Whether its programs are installed.
        runners: Whether the process of a run is one of this machine, which a test can kill.
        stored: Whether a controller starts them, whose state outlives it; or one command, with its own.
    """

    needs: Callable[[Cluster, Path], AbstractContextManager[Variables]] = lambda *_: contextlib.nullcontext(
        {}
    )
    options: Callable[[Cluster], list[str]] = lambda here: ["--testbed", here.state.name]
    there: bool = True
    runners: bool = True
    stored: bool = True


def on_engine(name: str) -> Callable[[Cluster], list[str]]:
    return lambda here: ["--testbed", here.state.name, "--executor", name]


LAUNCHES = {
    "children": Launch(stored=False),
    "processes": Launch(),
    "ssh": Launch(
        fallback_servers,
        lambda here: ["--cluster", str(here.file), "--launch-with", here.template, "--memory", "shared"],
    ),
    "Slurm": Launch(slurm_runs, on_engine("slurm"), SLURM, runners=False),
    "Ray": Launch(ray_runs, on_engine("ray"), RAY, runners=False),
}


@dataclass
class Launched(Controller):
    """A controller on one of the machines, and what starts its workers."""

    here: Cluster = field(kw_only=True)
    launch: Launch = field(kw_only=True)

    def run(self, name: str, *options: object, **keys: object) -> Path:
        """Submit a job that goes on until a file is there, and return that once it sums."""
        stop = self.folder / f"{name}.stop"
        self.submit(name, "--until", stop, *options, **keys)
        self.until(lambda: self.begun(name))
        return stop

    def again(self, name: str, happens: Callable[[Client], object]) -> None:
        """Have something happen to a job that sums; return when its workers, started again, do."""
        (self.folder / f"{name}.begun").unlink()
        with self.client() as client:
            happens(client)
        self.until(lambda: self.begun(name))

    def ranks(self, name: str, machines: Sequence[str] = MACHINES) -> list[int]:
        """Return the processes of a job's ranks on some machines."""
        found = itertools.chain(*(self.here.mentioning(each, f"{name}.stop") for each in machines))
        return [each for each in found if MARKS in arguments(each)[:2]]

    def runs(self, **servers: list[str]) -> list[Path]:
        """Have jobs run at once on these servers; return the files at which they end."""
        return [self.run(name, servers=on) for name, on in servers.items()]

    def ends(self, name: str, state: str = "completed", starts: int = 1) -> None:
        """Wait until a job is over; it was done once, and nothing of it is left."""
        self.over(name, state, starts)
        mark = self.folder / name
        assert (mark.read_text() if mark.exists() else "") == ("x" if state == "completed" else "")
        until(lambda: not self.here.jobs())

    def over(self, name: str, state: str, starts: int) -> None:
        """Wait until a job is over, and nothing of its run is left; it ended so, after so many starts."""
        self.until(lambda: self.job(name)["over"])
        job = self.job(name)
        assert (job["state"], job["starts"]) == (state, starts), self.said()
        self.until(lambda: self.clean() and not [*(self.state / "runs").iterdir()])


class Commanded(Launched):
    """``ina topo run`` with the jobs of a file: workers are its children, its state is in its memory."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, **variables: str) -> None:
        """Start nothing: each test starts the command with its jobs."""

    def serves(self) -> bool:
        return False  # it has no API

    def runs(self, **servers: list[str]) -> list[Path]:
        stops = {name: self.folder / f"{name}.stop" for name in servers}
        commands = {name: marks(self.folder / name, "--until", stop) for name, stop in stops.items()}
        jobs = [
            {"name": name, "workers": 2, "servers": on, "command": shlex.join(commands[name])}
            for name, on in servers.items()
        ]
        (file := self.folder / "jobs.json").write_text(json.dumps({"job": jobs}))
        (self.folder / "controller.log").unlink(missing_ok=True)  # of the command before
        options = ["--jobs", str(file), "--timeout", "300"]
        self.spawn([sys.executable, "-m", "ina", "topo", "run", self.here.state.name, *options])
        self.until(lambda: all(map(self.begun, stops)))
        return [*stops.values()]

    def cancel(self, name: str) -> None:
        self.end(signal.SIGINT)

    def over(self, name: str, state: str, starts: int) -> None:
        self.process.wait(PATIENCE_S)
        said = self.said()
        ended = "cancelled" if "interrupted by SIGINT" in said else "completed"
        assert ("failed" if f"ina: job {name}: " in said else ended, 1) == (state, starts), said


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, id=name, marks=pytest.mark.skipif(not each.there, reason=f"needs {name}"))
        for name, each in LAUNCHES.items()
    ],
)
def service(
    request: pytest.FixtureRequest, here: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Launched]:
    """A controller that serves, started again by each test that has killed it."""
    launch, folder = request.param, tmp_path_factory.mktemp("verbs")
    with launch.needs(here, folder) as own:
        beds = {"INA_TESTBEDS": os.environ["INA_TESTBEDS"]}
        made = (Launched if launch.stored else Commanded)(
            *(folder, launch.options(here), here.on("p1") if launch.stored else []),
            {**here.variables, **beds, **own},
            here=here,
            launch=launch,
        )
        made.start()
        yield made
        if made.process:  # a command starts in the tests, and this worker may have skipped them all
            made.end()


@pytest.fixture
def controller(service: Launched) -> Launched:
    """A controller that serves."""
    if not service.launch.stored:
        pytest.skip("its state ends with it")
    return service


def test_two_jobs_run_at_once_and_outlive_the_controller(service: Launched) -> None:
    """Where none is, they end with the command, and leave the switches when the next one has come."""
    stops = service.runs(one=FAR["servers"], two=["h1", "h4"])
    service.kill()
    if service.launch.stored:
        service.start()
        assert [service.states()[name] for name in ("one", "two")] == ["running"] * 2
    else:
        until(lambda: not service.ranks("one") + service.ranks("two"))
        stops = service.runs(one=FAR["servers"], two=["h1", "h4"])
    for stop in stops:
        stop.touch()
    for name in ("one", "two"):
        service.ends(name)


def test_a_job_whose_rank_is_killed_fails_and_another_goes_on_until_it_is_cancelled(
    service: Launched,
) -> None:
    service.runs(hurt=FAR["servers"], unwanted=OTHER)
    first, last = (service.ranks("hurt", [server]) for server in FAR["servers"])
    assert (len(first), len(last)) == (1, 1), "each is where it is to be"
    os.kill(*last, signal.SIGKILL)
    until(lambda: not service.ranks("hurt"))
    assert len(service.ranks("unwanted")) == 2
    service.cancel("unwanted")
    service.ends("hurt", "failed")
    service.ends("unwanted", "cancelled")
    assert not service.ranks("unwanted")


def test_a_job_that_is_cut_off_starts_again_if_there_is_who_starts_it(service: Launched) -> None:
    """Its ranks end; the other job goes on."""
    if not service.launch.runners:
        pytest.skip("its cluster manager loses the machine, too: `test_cluster_managers.py`")
    stops = service.runs(cut=FAR["servers"], beside=OTHER)
    (service.folder / "cut.begun").unlink()
    service.here.cable("h1", "down")
    try:
        until(lambda: not service.ranks("cut"))
    finally:
        service.here.cable("h1", "up")
    if service.launch.stored:
        service.until(lambda: service.begun("cut"))
    for stop in stops:
        stop.touch()
    service.ends("cut", *(("completed", 2) if service.launch.stored else ("failed", 1)))
    service.ends("beside")
    if not service.launch.stored:
        for who in ("lost rank 1: its machine", "the launcher at 10.0.0.1"):
            assert f"{who} has not answered for 10 s" in service.said()


def test_a_job_whose_server_is_drained_starts_again_elsewhere(controller: Launched) -> None:
    stop = controller.run("moves")
    servers = controller.job("moves")["servers"]
    controller.again("moves", lambda client: client.drain(servers[0]))
    assert servers[0] not in controller.job("moves")["servers"]
    with controller.client() as client:
        client.drain(servers[0], back=True)
    stop.touch()
    controller.ends("moves", starts=2)


def test_a_job_whose_runner_is_killed_starts_again(controller: Launched) -> None:
    if not controller.launch.runners:
        pytest.skip("its jobs have no process of this machine")
    stop = controller.run("lost", **FAR)
    (runner,) = filter(None, map(process_of, (controller.state / "runs").iterdir()))
    controller.again("lost", lambda client: os.kill(runner, signal.SIGKILL))
    stop.touch()
    controller.ends("lost", starts=2)


@pytest.mark.parametrize("step", STEPS)
def test_a_controller_may_be_killed_at_a_step(controller: Launched, step: str) -> None:
    """At a few only: `tests/ina/run/test_fault_points.py` tries all in virtual time.

    Launches differ in what an order that was given has begun; later steps are the same under each.
    """
    if step != STEPS[0] and controller.launch is not LAUNCHES["processes"] and not effort.THOROUGH:
        pytest.skip("tried with processes; with --thorough under each launch")
    controller.end()
    controller.start(**{VARIABLE: f"{step}:1"})
    with contextlib.suppress(Unreachable):  # it may die before it has answered
        controller.submit(step, **FAR)
    assert controller.process.wait(PATIENCE_S) == -signal.SIGKILL
    controller.start()
    controller.ends(step, starts=2 if step == "ordered" else 1)  # after an order workers may have begun
