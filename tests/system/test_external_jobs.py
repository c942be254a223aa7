"""Jobs whose workers somebody else starts, admitted by a controller: ``INA_CONTROLLER``, ``ina admit``."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import testbed
from bmv2_topos.testbeds.netns.names import namespace
from controller import Fleet
from ina.run.client import Refused
from ina.run.views import JobView
from tests.system.clusters import NETNS
from tests.system.command import ROOT, ended, here
from tests.system.controllers import PREFIX, Controller, laid_out, marks
from tests.system.test_machines import openmpi

pytestmark = NETNS
BED = f"{PREFIX}external"
SECRET = "what all ranks of these tests know"


@dataclass
class Admitting(Controller):
    """A controller on a testbed, and ranks that ask it for admission."""

    bed: netns.State = field(kw_only=True)
    ranks: list[subprocess.Popen[str]] = field(default_factory=list)

    def launch(self, name: str, stop: Path, hosts: Mapping[str, int]) -> list[subprocess.Popen[str]]:
        """Start ranks as mpirun does, so many on each of these hosts; they sum until a file is there."""
        size, places = sum(hosts.values()), [(host, n) for host, count in hosts.items() for n in range(count)]
        common = {
            **os.environ,
            "PMIX_NAMESPACE": name,
            "INA_MEETING": f"{self.bed.topology.ip(places[0][0])}:29600",
            "INA_TOKEN": SECRET,
            "INA_CONTROLLER": self.url,
            "INA_OPTIONS": f"--name {name} --model-bytes 20004",
            "OMP_NUM_THREADS": "1",
        }
        self.ranks = [
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    namespace(BED, host),
                    *marks(stop.with_suffix(".marks"), "--until", stop),
                ],
                cwd=ROOT,
                env={**openmpi(rank, size, local, hosts[host]), **common},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, (host, local) in enumerate(places)
        ]
        return self.ranks

    def becomes(self, name: str, state: str) -> JobView:
        """Wait until a job is in a state; return it."""
        self.until(lambda: self.states().get(name) == state)
        return self.job(name)

    def summing(self, stop: Path) -> None:
        """Wait until the latest ranks, which end with this file, have summed."""

        def holds() -> bool:
            assert all(each.poll() is None for each in self.ranks), self.said()
            return stop.with_suffix(".begun").exists()

        self.until(holds)

    def left(self) -> None:
        """Wait until nothing is held; nothing may be on a switch then."""
        self.until(lambda: not list((self.state / "external").glob("*")))
        assert self.clean()
        with testbed.controllers(self.bed) as at:
            assert Fleet(at).read() == {}

    def said(self) -> str:
        """Return what everybody has written."""
        ranks = [each.communicate()[1] for each in self.ranks if each.poll() is not None]
        return "\n".join([super().said(), *ranks])


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admitting]:
    beds = tmp_path_factory.mktemp("testbeds")
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="ina") as folder,
        laid_out(beds, BED, ROOT / "examples/cluster/two.toml", "--lanes", "32") as bed,
    ):
        patch.setenv("XDG_RUNTIME_DIR", folder)
        made = Admitting(Path(folder), ["--testbed", BED], bed=bed)
        made.start()
        yield made
        made.end()


def test_a_controller_admits_ranks_that_mpirun_starts_and_knows_their_job(
    controller: Admitting, tmp_path: Path
) -> None:
    """Also while it is killed and started again: the ranks sum on."""
    stop = tmp_path / "stop"
    ranks = controller.launch("launched", stop, {"left1": 2, "right1": 2})
    controller.summing(stop)
    job = controller.becomes("launched", "running")
    assert job["external"]
    assert job["servers"] == ["left1", "left1", "right1", "right1"]
    assert list(job["slots"]) == ["s1"]  # at s2 there is one machine: nothing to sum
    assert controller.clean()
    with controller.client() as client:
        events = [each["event"] for each in client.explain("launched")["decisions"]]
        assert events == ["submitted", "placed", "memory", "started"]
        with pytest.raises(Refused) as refused:
            client.retry("launched")
        assert refused.value.status == 409

    controller.kill()
    controller.start()
    job = controller.job("launched")
    assert job["state"] == "running"
    controller.until(lambda: controller.job("launched")["done"] > job["done"])

    stop.touch()
    for status, _, errors in map(ended, ranks):
        assert status == 0, errors
    assert (tmp_path / "stop.marks").read_text() == "x"
    assert controller.becomes("launched", "completed")["starts"] == 1
    controller.left()


def test_ranks_are_told_why_their_job_was_cancelled(controller: Admitting, tmp_path: Path) -> None:
    ranks = controller.launch("unwanted", tmp_path / "stop", {"left1": 1, "right1": 1})
    controller.summing(tmp_path / "stop")
    controller.cancel("unwanted")
    for status, _, errors in map(ended, ranks):
        assert status == 1, errors
        assert "the controller ends job 'unwanted': by its owner" in errors
    assert controller.job("unwanted")["state"] == "cancelled"
    controller.left()


WRONG: list[tuple[list[str], str]] = [
    (
        ["--machines", "0/1", "--machine", "left1", "--machine", "nobody", "--listen", "127.0.0.1"],
        "/machines/1/known_as: machine nobody is not in the cluster file",
    ),
    (
        ["--machines", "0,1", "--hierarchical", "--machine", "sums"],
        "servers: 2 GPUs of 'sums', which has 0",
    ),
    (
        ["--machine", "left1", "--program", "shared"],
        "--program: the controller decides this for its switches",
    ),
    (["--switch", "grpc://127.0.0.1:1"], "--controller and --switch are mutually exclusive"),
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_what_is_wrong_is_told_to_whoever_asks_for_admission(
    controller: Admitting, options: list[str], said: str
) -> None:
    done = here("admit", "-np", "2", "--controller", controller.url, *options, status=2)
    assert said in done.stderr
    if said.startswith("/"):
        assert json.loads(done.stdout)["failed"].startswith("/machines/1/known_as")
