"""Jobs whose workers somebody else starts, admitted by a controller: ``INA_CONTROLLER``, ``ina admit``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from ina.run.client import Refused
from tests.system.clusters import NETNS, Cluster
from tests.system.command import finish, until
from tests.system.command import here as ina
from tests.system.controllers import Controller, marks
from tests.system.test_machines import openmpi

pytestmark = NETNS
SHAPE = {"gpus": 2}


@dataclass
class Admitting(Controller):
    """A controller, and ranks that ask it for admission."""

    here: Cluster = field(kw_only=True)

    def launch(self, name: str, stop: Path, hosts: Mapping[str, int]) -> list[subprocess.Popen[str]]:
        """Start ranks as mpirun does, so many on each machine, which end at a file; return once they sum."""
        size, places = sum(hosts.values()), [(host, n) for host, count in hosts.items() for n in range(count)]
        common = {
            "PMIX_NAMESPACE": name,
            "INA_MEETING": f"{self.here.state.topology.ip(places[0][0])}:29600",
            "INA_CONTROLLER": self.url,
            "INA_OPTIONS": f"--name {name} --model-bytes 20004",
        }
        command = ["env", "-u", "INA_CLUSTER", *marks(stop.with_suffix(".marks"), "--until", stop)]
        ranks = [
            self.here.start(host, command, openmpi(rank, size, local, hosts[host]) | common)
            for rank, (host, local) in enumerate(places)
        ]
        until(stop.with_suffix(".begun").exists, state=lambda: [each.poll() for each in ranks])
        return ranks

    def left(self) -> None:
        """Wait until nothing is held; nothing may be on a switch then."""
        self.until(lambda: not list((self.state / "external").glob("*")))
        assert self.clean()
        assert self.here.jobs() == []


@pytest.fixture(scope="module")
def controller(here: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admitting]:
    options = ["--testbed", here.state.name]
    made = Admitting(tmp_path_factory.mktemp("external"), options, here.on("p1"), here.variables, here=here)
    made.start()
    yield made
    made.end()


def test_a_controller_admits_ranks_that_mpirun_starts_and_knows_their_job(
    controller: Admitting, tmp_path: Path
) -> None:
    """Also while it is killed and started again: the ranks sum on."""
    stop = tmp_path / "stop"
    ranks = controller.launch("launched", stop, {"h1": 2, "h3": 2})
    controller.until(lambda: controller.states()["launched"] == "running")
    job = controller.job("launched")
    assert job["external"]
    assert job["servers"] == ["h1", "h1", "h3", "h3"]
    assert list(job["slots"]) == ["s1"]  # in each rack there is one machine: nothing to sum
    assert controller.clean()
    with controller.client() as client:
        events = [each["event"] for each in client.explain("launched")["decisions"]]
        assert [each for each in events if each != "measured"] == ["submitted", "placed", "memory", "started"]
        with pytest.raises(Refused) as refused:
            client.retry("launched")
        assert refused.value.status == 409

    controller.kill()
    controller.start()
    job = controller.job("launched")
    assert job["state"] == "running"
    controller.until(lambda: controller.job("launched")["done"] > job["done"])

    stop.touch()
    for rank in ranks:
        finish(rank)
    assert (tmp_path / "stop.marks").read_text() == "x"
    controller.until(lambda: controller.states()["launched"] == "completed")
    assert controller.job("launched")["starts"] == 1
    controller.left()


def test_ranks_are_told_why_their_job_was_cancelled(controller: Admitting, tmp_path: Path) -> None:
    ranks = controller.launch("unwanted", tmp_path / "stop", {"h1": 1, "h3": 1})
    controller.cancel("unwanted")
    for rank in ranks:
        _, errors = finish(rank, 1)
        assert "the controller ends job 'unwanted': by its owner" in errors
    assert controller.job("unwanted")["state"] == "cancelled"
    controller.left()


WRONG: list[tuple[list[str], str]] = [
    (
        ["--machines", "0/1", "--machine", "h1", "--machine", "nobody", "--listen", "127.0.0.1"],
        "/machines/1/known_as: machine nobody is not in the cluster file",
    ),
    (
        ["--machines", "0,1", "--hierarchical", "--machine", "p1"],
        "servers: 2 GPUs of 'p1', which has 0",
    ),
    (
        ["--machine", "h1", "--program", "shared"],
        "--program: the controller decides this for its switches",
    ),
    (["--switch", "grpc://127.0.0.1:1"], "--controller and --switch are mutually exclusive"),
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_what_is_wrong_is_told_to_whoever_asks_for_admission(
    controller: Admitting, options: list[str], said: str
) -> None:
    done = ina("admit", "-np", "2", "--controller", controller.url, *options, status=2)
    assert said in done.stderr
    if said.startswith("/"):
        assert json.loads(done.stdout)["failed"].startswith("/machines/1/known_as")
