"""Jobs whose workers somebody else starts, admitted by a controller: ``INA_CONTROLLER``, ``ina admit``."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import testbed
from bmv2_topos.testbeds.netns.names import namespace
from controller import Fleet
from tests.system.command import ROOT, WORKERS, family, ina
from tests.system.test_testbeds import PREFIX, needs_namespaces

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

BED = f"{PREFIX}external"
CLUSTER = ROOT / "examples" / "cluster" / "two.toml"
PATIENCE_S = 120.0
SECRET = "what all ranks of these tests know"


@dataclass
class Controller:
    """A controller on a testbed, at a Unix socket, which processes of all namespaces reach."""

    bed: netns.State
    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """What it is started in: a test ends all that is started in its own."""
    process: subprocess.Popen[str] | None = None
    ranks: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"unix:{self.folder}/api"

    def start(self) -> None:
        """Start it, and wait until it serves."""
        options = ["--state", str(self.folder / "state"), "--testbed", BED, "--listen", self.url]
        with (self.folder / "controller.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ina", "controller", *options],
                cwd=ROOT,
                env=self.environment,
                stderr=log,
                text=True,
            )
        until(self.ready, lambda: (self.folder / "controller.log").read_text())

    def ready(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:  # httpx leaves one open that is refused
            if probe.connect_ex(str(self.folder / "api")):
                return False
        return bool(self.ask("GET", "/readyz").is_success)

    def ask(self, method: str, path: str) -> Any:
        """Return the controller's answer."""
        transport = httpx.HTTPTransport(uds=str(self.folder / "api"))
        with httpx.Client(base_url="http://localhost", transport=transport, timeout=PATIENCE_S) as client:
            return client.request(method, path)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def launch(
        self, name: str, stop: Path, hosts: Mapping[str, int], **variables: str
    ) -> list[subprocess.Popen[str]]:
        """Start ranks as mpirun does, so many on each of these hosts."""
        first, size, rank, started = next(iter(hosts)), sum(hosts.values()), 0, []
        meeting = f"{self.bed.topology.ip(first)}:29600"
        for host, count in hosts.items():
            for local in range(count):
                own = {
                    "OMPI_COMM_WORLD_RANK": str(rank),
                    "OMPI_COMM_WORLD_SIZE": str(size),
                    "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
                    "OMPI_COMM_WORLD_LOCAL_SIZE": str(count),
                    "PMIX_NAMESPACE": name,
                    "INA_MEETING": meeting,
                    "INA_TOKEN": SECRET,
                    "INA_CONTROLLER": self.url,
                    "INA_OPTIONS": f"--name {name} --model-bytes 20004",
                    "OMP_NUM_THREADS": "1",
                }
                command = [sys.executable, str(WORKERS / "marks.py"), str(stop.with_suffix(".marks"))]
                inside = ["ip", "netns", "exec", namespace(BED, host)]
                started.append(
                    subprocess.Popen(
                        [*inside, *command, "--until", str(stop)],
                        cwd=ROOT,
                        env={**os.environ, **own, **variables},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
                rank += 1
        self.ranks += started
        return started

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/v1/jobs/{name}").raise_for_status().json()
        return found

    def becomes(self, name: str, *states: str) -> dict[str, Any]:
        """Wait until a job is in one of these states; return it."""
        found: dict[str, Any] = {}

        def holds() -> bool:
            answer = self.ask("GET", f"/v1/jobs/{name}")
            found.update(answer.json())
            assert answer.status_code in (200, 404), answer.text
            assert not found.get("over") or found["state"] in states, self.said()
            return found.get("state") in states

        until(holds, self.said)
        return found

    def begun(self, stop: Path) -> None:
        """Wait until ranks that end with this file have summed."""

        def holds() -> bool:
            assert all(each.poll() is None for each in self.ranks[-2:]), self.said()
            return stop.with_suffix(".begun").exists()

        until(holds, self.said)

    def clean(self) -> None:
        """Wait until nothing is held; nothing may be on a switch then."""
        until(lambda: not list((self.folder / "state" / "external").glob("*")), self.said)
        assert self.ask("GET", "/v1/audit").json()["clean"]
        with testbed.controllers(self.bed) as at:
            assert Fleet(at).read() == {}

    def said(self) -> str:
        """Return what everybody has written, to be read when a test has failed."""
        ended = [each.communicate()[1] for each in self.ranks if each.poll() is not None]
        assert self.process is not None
        ended.append(f"the controller: {self.process.poll()}")
        return "\n".join([(self.folder / "controller.log").read_text(), *ended])


def until(holds: Callable[[], bool], said: Callable[[], str]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up, said()
        time.sleep(0.05)


def ended(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    return [
        (rank.returncode, errors)
        for rank, (_, errors) in [(rank, rank.communicate(timeout=PATIENCE_S)) for rank in ranks]
    ]


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with pytest.MonkeyPatch.context() as patch, family(), tempfile.TemporaryDirectory(prefix="ina") as folder:
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        patch.setenv("XDG_RUNTIME_DIR", folder)
        done = ina("topo", "up", CLUSTER, "--name", BED, "--program", "shared", "--lanes", "32")
        assert done.returncode == 0, done.stderr
        made = Controller(netns.find(BED), Path(folder))
        try:
            made.start()
            yield made
        finally:
            for rank in made.ranks:
                rank.kill()
                rank.communicate()
            if made.process is not None:
                made.process.terminate()
                made.process.wait()
            ina("topo", "down", BED)


@needs_namespaces
def test_a_controller_admits_ranks_that_mpirun_starts_and_knows_their_job(
    controller: Controller, tmp_path: Path
) -> None:
    """Also while it is killed and started again: the ranks sum on."""
    stop = tmp_path / "stop"
    ranks = controller.launch("launched", stop, {"left1": 2, "right1": 2})
    controller.begun(tmp_path / "stop")
    job = controller.becomes("launched", "running")
    assert job["external"]
    assert job["servers"] == ["left1", "left1", "right1", "right1"]
    assert list(job["slots"]) == ["s1"]  # at s2 there is one machine: nothing to sum
    assert controller.ask("GET", "/v1/audit").json()["clean"]
    explained = controller.ask("GET", "/v1/jobs/launched/explanation").json()
    assert [each["event"] for each in explained["decisions"]] == ["submitted", "placed", "memory", "started"]
    assert controller.ask("POST", "/v1/jobs/launched/retry").status_code == 409

    controller.kill()
    controller.start()
    assert controller.job("launched")["state"] == "running"
    done = controller.job("launched")["done"]
    until(lambda: controller.job("launched")["done"] > done, controller.said)

    stop.touch()
    for status, errors in ended(ranks):
        assert status == 0, errors
    assert (tmp_path / "stop.marks").read_text() == "x"
    assert controller.becomes("launched", "completed")["starts"] == 1
    controller.clean()


@needs_namespaces
def test_a_job_leaves_nothing_whose_rank_is_killed(controller: Controller, tmp_path: Path) -> None:
    ranks = controller.launch("killed", tmp_path / "stop", {"left1": 1, "right1": 1})
    controller.begun(tmp_path / "stop")
    ranks[1].send_signal(signal.SIGKILL)
    (first, errors), (second, _) = ended(ranks)
    assert (first, second) == (1, -signal.SIGKILL), errors
    job = controller.becomes("killed", "failed")
    assert "rank 1" in job["reason"]
    controller.clean()


@needs_namespaces
def test_ranks_are_told_why_their_job_was_cancelled(controller: Controller, tmp_path: Path) -> None:
    ranks = controller.launch("unwanted", tmp_path / "stop", {"left1": 1, "right1": 1})
    controller.begun(tmp_path / "stop")
    controller.ask("DELETE", "/v1/jobs/unwanted").raise_for_status()
    for status, errors in ended(ranks):
        assert status == 1, errors
        assert "the controller ends job 'unwanted': by its owner" in errors
    assert controller.job("unwanted")["state"] == "cancelled"
    controller.clean()


@needs_namespaces
def test_a_job_waits_for_room_and_ranks_of_one_machine_need_no_switch(
    controller: Controller, tmp_path: Path
) -> None:
    first = controller.launch("first", tmp_path / "one", {"left1": 2})
    controller.begun(tmp_path / "one")
    assert controller.job("first")["slots"] == {}
    second = controller.launch("second", tmp_path / "two", {"left1": 2})
    controller.becomes("second", "queued")
    (tmp_path / "one").touch()
    controller.begun(tmp_path / "two")
    (tmp_path / "two").touch()
    for status, errors in (*ended(first), *ended(second)):
        assert status == 0, errors
    controller.becomes("second", "completed")
    controller.clean()


@needs_namespaces
def test_what_is_wrong_is_told_to_whoever_asks_for_admission(controller: Controller) -> None:
    def admit(*options: str) -> subprocess.CompletedProcess[str]:
        return ina("admit", "-np", "2", "--controller", controller.url, *options)

    stranger = admit(
        "--machines", "0/1", "--machine", "left1", "--machine", "nobody", "--listen", "127.0.0.1"
    )
    assert stranger.returncode == 2, stranger.stderr
    assert "/machines/1/known_as: machine nobody is not in the cluster file" in stranger.stderr
    assert json.loads(stranger.stdout)["failed"].startswith("/machines/1/known_as")
    full = admit("--machines", "0,1", "--hierarchical", "--machine", "sums")
    assert full.returncode == 2, full.stderr
    assert "servers: 2 GPUs of 'sums', which has 0" in full.stderr
    other = admit("--machine", "left1", "--program", "shared")
    assert "--program: the switches are the controller's" in other.stderr
    both = admit("--switch", "grpc://127.0.0.1:1")
    assert "--controller and --switch are mutually exclusive" in both.stderr
