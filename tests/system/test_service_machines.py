"""The service on machines of a cluster file, each a network namespace with its own host name and files."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from controller import connect
from controller.vocabulary import Topology, read_topology
from controller.vocabulary.catalog import leaf_spine
from controller.vocabulary.files import topology_document
from tests.clusters import without
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import Cluster, cluster, until
from tests.system.command import ROOT, WORKERS

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")
REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]


@dataclass
class Served:
    """A controller on the first machine, whose cluster file a test writes."""

    bed: Cluster
    folder: Path
    more: tuple[str, ...] = ()
    """Further options."""
    controller: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix:{self.folder}/api"

    @property
    def file(self) -> Path:
        return self.folder / "lab.json"

    @property
    def log(self) -> str:
        return (self.folder / "controller.log").read_text()

    def describe(self, topology: Topology) -> None:
        self.file.write_text(json.dumps(topology_document(topology)))

    def start(self) -> None:
        options = ["--state", str(self.folder / "state"), "--cluster", str(self.file), "--listen", self.url]
        options += ["--launch-with", self.bed.template, "--memory", "shared", *self.more]
        with (self.folder / "controller.log").open("ab") as log:
            self.controller = subprocess.Popen(
                [*self.bed.on("h1"), sys.executable, "-m", "ina", "controller", *options],
                cwd=ROOT,
                env=self.bed.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.until(self.ready)

    def kill(self) -> None:
        """End it with SIGKILL; what it has started goes on."""
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    def ready(self) -> bool:
        assert self.controller is not None
        assert self.controller.poll() is None, self.log
        with socket.socket(socket.AF_UNIX) as probe:  # httpx leaves one open that is refused
            if probe.connect_ex(str(self.folder / "api")):
                return False
        with self.client() as client:
            return bool(client.get("/readyz").is_success)

    def client(self) -> Any:
        transport = httpx.HTTPTransport(uds=str(self.folder / "api"))
        return httpx.Client(base_url="http://localhost", transport=transport, timeout=120)

    def ask(self, path: str) -> dict[str, Any]:
        with self.client() as client:
            found: dict[str, Any] = client.get(path).raise_for_status().json()
            return found

    def ina(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ina", *arguments],
            cwd=ROOT,
            env={**os.environ, "INA_CONTROLLER": self.url},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def submit(self, name: str, workers: int, until_file: Path) -> None:
        command = [sys.executable, str(WORKERS / "marks.py"), str(self.folder / name)]
        done = self.ina(
            *("submit", "-np", str(workers), "--name", name, "--", *command, "--until", str(until_file))
        )
        assert done.returncode == 0, (done.stderr, self.log)

    def job(self, name: str) -> dict[str, Any]:
        return self.ask(f"/v1/jobs/{name}")

    def until(self, holds: Any) -> None:
        try:
            until(holds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None

    def explained(self, name: str) -> str:
        return f"{self.ina('explain', name).stdout}\n{self.ina('logs', name).stdout}\n{self.log}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    shape = leaf_spine(2, 2, 2, servers=2)
    with cluster(tmp_path, shape=shape) as bed:
        bed.serve_fallback("p1")
        bed.serve_fallback("p2")
        found = Served(bed, tmp_path)
        try:
            yield found
        finally:
            if found.controller is not None:
                found.controller.kill()
                found.controller.wait()


def jobs_at(bed: Cluster, switch: str) -> Mapping[int, object]:
    with connect(f"unix:{bed.state.socket(switch)}") as controller:
        return controller.jobs()


def test_machines_come_and_go_under_jobs(served: Served) -> None:
    """A new server is used; a job outlives the controller's death, and moves off a switch that leaves."""
    whole = read_topology(served.bed.file)
    stop = served.folder / "stop"
    served.describe(without(whole, ["h2"]))
    served.start()
    served.submit("wide", 3, stop)
    served.submit("waits", 1, stop)
    begun = served.folder / "wide.begun"
    served.until(begun.exists)
    before = served.job("wide")
    assert sorted(before["servers"]) == ["h1", "h3", "h4"], before
    assert served.job("waits")["state"] == "queued"

    served.describe(whole)
    done = served.ina("reload")
    assert done.returncode == 0, (done.stderr, served.log)
    assert "server 'h2' is new, with 1 GPU, at switch 's3'" in done.stdout
    served.until((served.folder / "waits.begun").exists)
    assert served.job("waits")["servers"] == ["h2"]

    document = topology_document(whole)
    servers: Any = document["server"]
    del servers[0]["mac"]
    served.file.write_text(json.dumps(document))
    wrong = served.ina("reload")
    assert wrong.returncode != 0
    assert "lab.json" in wrong.stderr, wrong.stderr
    assert "server 'h1': mac is missing: 'ina host' on that machine prints it" in " ".join(
        wrong.stderr.split()
    )
    served.describe(whole)
    same = served.ina("reload")
    assert "the cluster is as before" in same.stdout, (same.stdout, same.stderr)

    served.kill()
    served.start()
    assert served.job("wide")["starts"] == 1, served.explained("wide")
    assert served.job("wide")["state"] == "running", served.explained("wide")

    spine = before["tree"]["root"]
    begun.unlink()
    served.describe(without(whole, [spine]))
    assert served.controller is not None
    os.kill(controller_of(served), signal.SIGHUP)
    served.until(begun.exists)
    after = served.job("wide")
    assert {after["tree"]["root"], spine} == {"s1", "s2"}, served.explained("wide")
    assert after["starts"] == 2, served.explained("wide")
    served.until(lambda: not jobs_at(served.bed, spine))
    assert [each["name"] for each in served.ask("/v1/cluster")["switches"]] == [
        name for name in ("s1", "s2", "s3", "s4") if name != spine
    ]

    stop.touch()
    for name in ("wide", "waits"):
        served.until(lambda name=name: served.job(name)["state"] not in ("running", "starting"))
        assert served.job(name)["state"] == "completed", served.explained(name)
        assert (served.folder / name).read_text() == "x"
    served.until(lambda: served.ask("/v1/audit")["clean"])
    assert all(not jobs_at(served.bed, name) for name in whole.switch)


def test_a_job_on_all_machines_has_its_fallback_server_beside_a_worker(tmp_path: Path) -> None:
    """No machine is free of its workers. The server is killed, and its service: each is started again."""
    with cluster(tmp_path, shape=leaf_spine(1, 2, 2)) as bed:
        served = Served(bed, tmp_path)
        whole = read_topology(bed.file)
        servers = [replace(each, fallback_port=9560 if each.name == "h3" else 0) for each in whole.servers]
        whole = replace(whole, servers=tuple(servers))
        bed.file.write_text(json.dumps(topology_document(whole)))
        bed.serve_fallback("h3")
        served.describe(whole)
        stop = tmp_path / "stop"
        try:
            served.start()
            served.submit("wide", 4, stop)
            begun = tmp_path / "wide.begun"
            served.until(begun.exists)
            job = served.job("wide")
            assert (job["fallback"], job["tree"]["root"]) == ("h3", whole.rack_of["h3"]), job
            for process in bed.mentioning("h3", "--beside-workers"):
                os.kill(process, signal.SIGKILL)
            served.kill()
            served.start()
            served.until(lambda: bed.mentioning("h3", "--beside-workers"))
            stop.touch()
            served.until(lambda: served.job("wide")["state"] not in ("running", "starting"))
            assert served.job("wide")["state"] == "completed", served.explained("wide")
            assert served.job("wide")["starts"] == 1
            assert (tmp_path / "wide").read_text() == "x"
            served.until(lambda: served.ask("/v1/audit")["clean"])
        finally:
            if served.controller is not None:
                served.controller.kill()
                served.controller.wait()


def controller_of(served: Served) -> int:
    """Return the process of the controller itself, which is started through scripts."""
    state = (served.folder / "state" / "lock").read_text()
    return int(state.split()[1])
