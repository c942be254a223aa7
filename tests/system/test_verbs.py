"""What a job of a controller goes through under each launch, with real processes.

`tests/ina/service/test_verbs.py` has all of it on each store, in virtual time. Launches whose programs are
not installed are left out.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from ina.faults import VARIABLE
from ina.launch.files import process_of
from ina.service.client import Client, Unreachable
from tests.system.cluster_managers import RAY, SLURM
from tests.system.clusters import NETNS, Cluster
from tests.system.command import PATIENCE_S, until
from tests.system.controllers import Controller
from tests.system.test_cluster_managers import Variables, ray_runs, slurm_runs

pytestmark = [*NETNS, pytest.mark.slow]
SHAPE = {"gpus": 6}
FAR = {"servers": ["h1", "h3"]}
"""Servers in two racks: their tree goes over the root."""
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
    """A way in which a controller starts workers.

    Attributes:
        needs: Makes what it needs; gives the variables of its users.
        options: Of the controller.
        there: Whether its programs are installed.
        runners: Whether the process of a run is one of this machine, which a test can kill.
    """

    needs: Callable[[Cluster, Path], AbstractContextManager[Variables]] = lambda *_: contextlib.nullcontext(
        {}
    )
    options: Callable[[Cluster], list[str]] = lambda here: ["--testbed", here.state.name]
    there: bool = True
    runners: bool = True


def on_machines(here: Cluster) -> list[str]:
    return ["--cluster", str(here.file), "--launch-with", here.template, "--memory", "shared"]


def on_engine(name: str) -> Callable[[Cluster], list[str]]:
    return lambda here: ["--testbed", here.state.name, "--executor", name]


LAUNCHES = {
    "processes": Launch(),
    "ssh": Launch(fallback_servers, on_machines),
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

    def ends(self, name: str, state: str = "completed", starts: int = 1) -> None:
        """Wait until a job is over; it was done once, and nothing of it is left."""
        self.until(lambda: self.job(name)["over"])
        job = self.job(name)
        assert (job["state"], job["starts"]) == (state, starts), self.said()
        mark = self.folder / name
        assert (mark.read_text() if mark.exists() else "") == ("x" if state == "completed" else "")
        self.until(self.clean)
        until(lambda: not self.here.jobs() and not [*(self.state / "runs").iterdir()])


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
        made = Launched(
            *(folder, launch.options(here), here.on("p1"), {**here.variables, **beds, **own}),
            here=here,
            launch=launch,
        )
        made.start()
        yield made
        made.end()


def test_two_jobs_run_at_once_and_outlive_the_controller(service: Launched) -> None:
    stops = [service.run("one", **FAR), service.run("two", servers=["h1", "h4"])]
    service.kill()
    service.start()
    assert [service.states()[name] for name in ("one", "two")] == ["running"] * 2
    for stop in stops:
        stop.touch()
    for name in ("one", "two"):
        service.ends(name)


def test_a_job_that_is_cancelled_leaves_nothing(service: Launched) -> None:
    service.run("unwanted", **FAR)
    service.cancel("unwanted")
    service.ends("unwanted", "cancelled")


def test_a_job_whose_server_is_drained_starts_again_elsewhere(service: Launched) -> None:
    stop = service.run("moves")
    servers = service.job("moves")["servers"]
    service.again("moves", lambda client: client.drain(servers[0]))
    assert servers[0] not in service.job("moves")["servers"]
    with service.client() as client:
        client.drain(servers[0], back=True)
    stop.touch()
    service.ends("moves", starts=2)


def test_a_job_whose_runner_is_killed_starts_again(service: Launched) -> None:
    if not service.launch.runners:
        pytest.skip("its jobs have no process of this machine")
    stop = service.run("lost", **FAR)
    (runner,) = filter(None, map(process_of, (service.state / "runs").iterdir()))
    service.again("lost", lambda client: os.kill(runner, signal.SIGKILL))
    stop.touch()
    service.ends("lost", starts=2)


@pytest.mark.parametrize("step", STEPS)
def test_a_controller_may_be_killed_at_a_step(service: Launched, step: str) -> None:
    """At a few only: `tests/ina/service/test_fault_points.py` tries all in virtual time."""
    service.end()
    service.start(**{VARIABLE: f"{step}:1"})
    with contextlib.suppress(Unreachable):  # it may die before it has answered
        service.submit(step, **FAR)
    assert service.process.wait(PATIENCE_S) == -signal.SIGKILL
    service.start()
    service.ends(step, starts=2 if step == "ordered" else 1)  # after an order workers may have begun
