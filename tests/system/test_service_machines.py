"""The service on machines of a cluster file, each a network namespace with its own host name and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from controller import connect
from controller.vocabulary import Topology, read_topology
from controller.vocabulary.catalog import leaf_spine
from controller.vocabulary.files import topology_document
from tests.clusters import without
from tests.system.clusters import NETNS, Cluster, cluster
from tests.system.command import ROOT
from tests.system.controllers import Controller

pytest.importorskip("fastapi")
pytestmark = NETNS


@dataclass
class Served(Controller):
    """A controller on the first machine, whose cluster file a test writes."""

    bed: Cluster = field(kw_only=True)

    @classmethod
    def on(cls, bed: Cluster, folder: Path, *more: str) -> Served:
        """Return one for machines, which has not been started."""
        options = ["--cluster", str(folder / "lab.json"), "--launch-with", bed.template, "--memory", "shared"]
        return cls(folder, [*options, *more], bed.on("h1"), bed.variables, bed=bed)

    @property
    def file(self) -> Path:
        return self.folder / "lab.json"

    def describe(self, topology: Topology) -> None:
        self.file.write_text(json.dumps(topology_document(topology)))

    def ina(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ina", *arguments],
            cwd=ROOT,
            env={**os.environ, "INA_CONTROLLER": self.url},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def over(self, name: str) -> Mapping[str, Any]:
        """Wait until a job is over; return it."""
        self.until(lambda: self.job(name)["over"])
        assert self.job(name)["state"] == "completed", self.said()
        assert (self.folder / name).read_text() == "x"
        return self.job(name)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with cluster(tmp_path, shape=leaf_spine(2, 2, 2, servers=2)) as bed:
        bed.serve_fallback("p1")
        bed.serve_fallback("p2")
        (policies := tmp_path / "policies.toml").write_text('scheduler = "fifo"\n')
        yield Served.on(bed, tmp_path, "--policies", str(policies))


def jobs_at(bed: Cluster, switch: str) -> Mapping[int, object]:
    with connect(f"unix:{bed.state.socket(switch)}") as controller:
        return controller.jobs()


def test_machines_come_and_go_under_jobs(served: Served) -> None:
    """A new server is used, a file that lacks something is not, and a job moves off a switch that leaves."""
    whole, stop = read_topology(served.bed.file), served.folder / "stop"
    served.describe(without(whole, ["h2"]))
    served.start()
    served.submit("wide", "--until", stop, workers=3)
    served.submit("waits", "--until", stop, workers=1)
    served.until(lambda: served.begun("wide"))
    before = served.job("wide")
    assert sorted(before["servers"]) == ["h1", "h3", "h4"], before
    assert served.job("waits")["state"] == "queued"

    served.describe(whole)
    done = served.ina("reload")
    assert done.returncode == 0, (done.stderr, served.said())
    assert "server 'h2' is new, with 1 GPU, at switch 's3'" in done.stdout
    served.until(lambda: served.begun("waits"))
    assert served.job("waits")["servers"] == ["h2"]

    document = topology_document(whole)
    servers: Any = document["server"]
    del servers[0]["mac"]
    served.file.write_text(json.dumps(document))
    os.kill(served.pid, signal.SIGHUP)
    missing = "lab.json:1: server 'h1': mac is missing: 'ina host' on that machine prints it"
    served.until(lambda: missing in (served.folder / "controller.log").read_text())
    served.describe(whole)
    assert "the cluster has not changed" in served.ina("reload").stdout
    assert (served.job("wide")["starts"], served.job("wide")["state"]) == (1, "running"), served.said()

    spine = before["tree"]["root"]
    (served.folder / "wide.begun").unlink()
    served.describe(without(whole, [spine]))
    (served.folder / "policies.toml").write_text('scheduler = "srsf"\n')
    os.kill(served.pid, signal.SIGHUP)
    served.until(lambda: served.begun("wide"))
    after = served.job("wide")
    assert {after["tree"]["root"], spine} == {"s1", "s2"}, served.said()
    assert after["starts"] == 2, served.said()
    served.until(lambda: not jobs_at(served.bed, spine))
    with served.client() as client:
        found = client.cluster()
    names = [each["name"] for each in found["switches"]]
    assert names == [name for name in ("s1", "s2", "s3", "s4") if name != spine]
    assert found["policies"]["scheduler"] == "srsf"

    stop.touch()
    for name in ("wide", "waits"):
        served.over(name)
    served.until(served.clean)
    served.end()
    assert all(not jobs_at(served.bed, name) for name in whole.switch)


def test_a_job_on_all_machines_has_its_fallback_server_beside_a_worker(tmp_path: Path) -> None:
    """No machine is free of its workers. The server is killed, and its service: each is started again."""
    with cluster(tmp_path, shape=leaf_spine(1, 2, 2)) as bed:
        whole = read_topology(bed.file)
        servers = [replace(each, fallback_port=9560 if each.name == "h3" else 0) for each in whole.servers]
        whole = replace(whole, servers=tuple(servers))
        bed.file.write_text(json.dumps(topology_document(whole)))
        bed.serve_fallback("h3")
        served = Served.on(bed, tmp_path)
        served.describe(whole)
        served.start()
        served.submit("wide", "--until", tmp_path / "stop", workers=4)
        served.until(lambda: served.begun("wide"))
        job = served.job("wide")
        assert (job["fallback"], job["tree"]["root"]) == ("h3", whole.rack_of["h3"]), job
        for process in bed.mentioning("h3", "--beside-workers"):
            os.kill(process, signal.SIGKILL)
        served.kill()
        served.start()
        served.until(lambda: bed.mentioning("h3", "--beside-workers"))
        (tmp_path / "stop").touch()
        assert served.over("wide")["starts"] == 1
        served.until(served.clean)
        served.end()
