"""The controller's jobs on a real Ray of five nodes: four for workers, and the controller's own."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import effort
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import Cluster, cluster, until
from tests.system.command import WORKERS
from tests.system.engines import Service, output
from tests.system.ray_nodes import RAY, ray_on

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
REASON = REASON or ("" if RAY else "needs ray[train]")
pytestmark = [
    effort.if_thorough(),
    pytest.mark.netns,
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.slow,  # Ray's processes take most of it
]
GPUS = 6
MACHINES = ("h1", "h2", "h3", "h4")
NAMES = [f"j{number}" for number in range(8)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        with cluster(tmp_path_factory.mktemp("cluster"), gpus=GPUS) as made:
            yield made


@pytest.fixture(scope="module")
def ray(here: Cluster) -> dict[str, str]:
    """Start Ray; give the variables of its users."""
    return {"RAY_ADDRESS": ray_on(here, {"p1": 0, **dict.fromkeys(MACHINES, GPUS)})}


def test_a_torch_trainer_is_placed_and_admitted_by_the_controller(
    here: Cluster, ray: dict[str, str], tmp_path: Path
) -> None:
    """It is unmodified but for the name of the backend; two workers on each of two servers."""
    service = Service(here, tmp_path, ray, ["--executor", "ray"])
    script = [sys.executable, str(WORKERS / "ray_train.py"), ray["RAY_ADDRESS"], "ina", "4", str(tmp_path)]
    servers = ["h2", "h2", "h3", "h3"]
    driver = {"driver": True}
    service.submit({"name": "t", "workers": 4, "command": script, "servers": servers, "extra": driver})
    service.until(lambda: service.states()["t"] not in ("queued", "starting", "running", "stopping"))
    assert service.states() == {"t": "completed"}, service.logs()
    ranks = [json.loads((tmp_path / f"ina-{rank}").read_text()) for rank in range(4)]
    assert sorted(machine for machine, _ in ranks) == servers
    for _, losses in ranks:
        assert losses[-1] < losses[0]
    until(lambda: not here.jobs(), 60.0)
    service.stop()


def test_ray_runs_eight_jobs_where_the_controller_wants(
    here: Cluster, ray: dict[str, str], tmp_path: Path
) -> None:
    """Both have the same view of them, whoever is killed; a node that is lost ends nothing for good."""
    service = Service(here, tmp_path, ray, ["--executor", "ray", "--placement", "gpu-balance"])
    service.submit(*({"name": name} for name in NAMES))
    service.until(lambda: all(map(service.sums, NAMES)))
    ours = service.jobs()
    theirs = json.loads(output(here, ray, sys.executable, str(WORKERS / "ray_view.py")))
    assert theirs.keys() == {f"ina {name}" for name in NAMES}
    for name in NAMES:
        number, nodes = theirs[f"ina {name}"]
        assert ours[name]["engine"] == f"Ray placement group {number}, created"
        assert nodes == sorted(ours[name]["servers"]), name
    assert {server for job in ours.values() for server in job["servers"]} == {*MACHINES}

    service.kill()
    service.start()
    again = service.jobs()
    assert {name: (job["engine"], job["starts"]) for name, job in again.items()} == {
        name: (job["engine"], 1) for name, job in ours.items()
    }

    lost = {name for name in NAMES if "h4" in ours[name]["servers"]}
    here.signal_machine("h4", signal.SIGKILL)
    service.until(lambda: all("h4" not in job["servers"] for job in service.jobs().values()))
    service.until(lambda: {*service.states().values()} == {"running"})
    moved = service.jobs()
    assert {name for name, job in moved.items() if job["starts"] > 1} == lost
    service.until(lambda: all(job["engine"].endswith("created") for job in service.jobs().values()))
    (tmp_path / "stop").touch()
    service.until(lambda: {*service.states().values()} == {"completed"})
    assert {name: (tmp_path / name).read_text() for name in NAMES} == dict.fromkeys(NAMES, "x")
    until(lambda: not here.jobs(), 60.0)
    service.until(lambda: not service.audit()["found"])
    service.stop()
