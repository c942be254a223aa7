"""The controller's jobs on a real Slurm and on a real Ray: nodes for workers, and the controller's own.

The patience of these with a node that is lost takes most of the time. What each job goes through there is in
`test_verbs.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import effort, started
from tests.system.cluster_managers import RAY, SLURM, ray_on, slurm_on
from tests.system.clusters import NETNS, Cluster, cluster
from tests.system.command import ROOT, WORKERS, until
from tests.system.console import make_folder, steps
from tests.system.controllers import Controller

pytestmark = NETNS
GPUS = 6
SHAPE = {"gpus": GPUS}
MACHINES = ("h1", "h2", "h3", "h4")
LICENCES = 4 * 8192
Variables = Mapping[str, str]


def output(here: Cluster, variables: Variables, *command: str) -> str:
    """Return what a command writes on ``p1``."""
    environment = {**here.variables, **variables}
    done = subprocess.run([*here.on("p1"), *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def slurm_runs(here: Cluster, folder: Path) -> Iterator[Variables]:
    more = f"SlurmdTimeout=20\nLicenses=ina_slots:{LICENCES}"
    (folder / "slurm").mkdir()
    with slurm_on(here, folder / "slurm", cpus=GPUS, more=more) as running:
        yield running.variables


@contextlib.contextmanager
def ray_runs(here: Cluster, folder: Path) -> Iterator[Variables]:
    yield {"RAY_ADDRESS": ray_on(here, {"p1": 0, **dict.fromkeys(MACHINES, GPUS)})}


SKIPS = {
    "Slurm": pytest.mark.skipif(not SLURM, reason="needs slurmctld, slurmd, srun, sbatch and munged"),
    "Ray": pytest.mark.skipif(not RAY, reason="needs ray[train]"),
}


@effort.if_thorough()
@SKIPS["Slurm"]
def test_slurm_waits_for_slots_and_sbatch_may_be_killed(here: Cluster, tmp_path: Path) -> None:
    """Slots are licences; a job whose sbatch was killed runs once; one that loses its node, elsewhere."""
    killed = tmp_path / "killed"
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(
        f'#!/bin/sh\n{shutil.which("sbatch")} "$@" || exit\n'
        f"if [ ! -e {killed} ]; then touch {killed}; kill -9 $$; fi\n"
    )
    sbatch.chmod(0o755)
    with slurm_runs(here, tmp_path) as own:
        other = ("sbatch", "--parsable", f"--licenses=ina_slots:{LICENCES}", "--output=/dev/null")
        number = output(here, own, *other, "--wrap=sleep 1000").strip()
        path = {"PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
        options = ["--executor", "slurm", "--licence", "ina_slots", "--memory", "static"]
        service = Controller.on(here, tmp_path, *options, **own, **path)
        service.start()
        service.submit("due", "--until", tmp_path / "stop", servers=["h1", "h3"])
        service.until(lambda: service.job("due")["engine"].endswith("pending (Licenses)"))
        assert killed.exists()
        assert service.states()["due"] == "starting"
        assert not service.begun("due")
        output(here, own, "scancel", number)
        service.until(lambda: service.begun("due"))
        job = service.job("due")
        assert job["standing"] == "granted"
        slots = sum(each["slots"] for each in job["slots"].values())
        assert f"Used={slots} " in output(here, own, "scontrol", "show", "licenses")
        (tmp_path / "stop").touch()
        service.until(lambda: service.states()["due"] == "completed")
        assert (tmp_path / "due").read_text() == "x"
        service.submit("moves", "--until", tmp_path / "go")
        service.until(lambda: service.begun("moves"))
        server = service.job("moves")["servers"][0]
        here.signal_machine(server, signal.SIGKILL)
        service.until(lambda: service.job("moves")["starts"] == 2 and service.states()["moves"] == "running")
        assert server not in service.job("moves")["servers"]
        (tmp_path / "go").touch()
        service.until(lambda: service.states()["moves"] == "completed" and service.clean())
        assert (tmp_path / "moves").read_text() == "x"
        service.end()


@SKIPS["Ray"]
def test_a_job_runs_once_ray_has_room_and_never_on_a_node_that_is_lost(here: Cluster, tmp_path: Path) -> None:
    """Ray counts a node as living for 15 s after its end; jobs were started there once more, in vain."""
    servers = ["h1", "h3"]
    own = {"RAY_ADDRESS": ray_on(here, {"p1": 0, **dict.fromkeys(servers, 1)})}
    service = Controller.on(here, tmp_path, "--executor", "ray", **own)
    service.start()
    service.submit("runs", "--until", tmp_path / "stop", servers=servers)
    service.until(lambda: service.begun("runs"))
    service.submit("waits", servers=servers)
    service.until(lambda: service.job("waits")["engine"].endswith(", pending"))
    waits = service.job("waits")
    assert (waits["state"], waits["reason"]) == ("starting", waits["engine"])
    service.cancel("waits")

    here.signal_machine("h3", signal.SIGKILL)
    service.until(lambda: service.states()["runs"] != "running")
    service.until(lambda: service.states()["runs"] == "queued")
    job = service.job("runs")
    assert (job["starts"], job["reason"]) == (1, "server h3 is down: no node of Ray at 10.0.0.3 answers")
    service.cancel("runs")
    until(lambda: not here.jobs())
    service.until(service.clean)
    service.end()


@effort.if_thorough()
@SKIPS["Ray"]
def test_a_torch_trainer_is_placed_and_admitted_by_the_controller(here: Cluster, tmp_path: Path) -> None:
    """It is unmodified but for the name of the backend; two workers on each of two servers."""
    with ray_runs(here, tmp_path) as own:
        service = Controller.on(here, tmp_path, "--executor", "ray", **own)
        service.start()
        script = [sys.executable, str(WORKERS / "ray_jobs.py"), "train", own["RAY_ADDRESS"], "4"]
        servers, answers = ["h2", "h2", "h3", "h3"], f"ANSWERS={tmp_path}"
        job: dict[str, Any] = {"name": "t", "workers": 4, "servers": servers, "extra": {"driver": True}}
        with service.client() as client:
            client.submit([{**job, "command": ["env", answers, *script]}])
        service.until(lambda: service.job("t")["over"])
        assert service.states() == {"t": "completed"}, service.said()
        machines = [(tmp_path / f"{rank}.pid").read_text().split()[1] for rank in range(4)]
        assert sorted(machines) == servers
        for rank in range(4):
            losses = json.loads((tmp_path / f"{rank}.losses").read_text())
            assert losses[-1] < losses[0]
        until(lambda: not here.jobs())
        service.end()


# --------------------------------------------------------------------------- docs/guides/slurm-ray.md


@pytest.fixture
def small(tmp_path: Path, beds: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", gpus=2) as made:
        yield made


def run_page(here: Cluster, section: str, folder: Path, variables: Variables) -> dict[str, str]:
    """Carry out the sessions of ``section`` of the page on ``p1``; return what each command wrote.

    The controller gets the state and the testbed of the test; a cluster manager that is to be started is
    there already.
    """
    page = (ROOT / "docs" / "guides" / "slurm-ray.md").read_text()
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    (folder / "page").mkdir()
    places = [str(make_folder(folder / "page") / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    own = {**variables, "PATH": ":".join(places), "PYTHONPATH": started.PATH}
    service: Controller | None = None
    said = {}
    for command, _ in steps(text):
        words = command.split()
        if words[:2] == ["ray", "start"]:
            continue
        if words[:2] == ["ina", "controller"]:
            assert (words[2], words[4:6]) == ("--state", ["--testbed", "lab"]), command
            service = Controller.on(here, folder, *words[6:], **variables)
            service.start()
            own["INA_CONTROLLER"] = service.url
            continue
        assert service is not None, command
        said[command] = output(here, own, "sh", "-c", command)
        if words[:2] == ["ina", "submit"]:
            service.until(partial(runs, service))
        if words[:2] == ["ina", "cancel"]:
            service.until(partial(are_over, service))
            assert [*service.states().values()] == ["cancelled"]
    until(lambda: not here.jobs())
    service.end()
    return said


def runs(service: Controller) -> bool:
    """Return whether the cluster manager runs the jobs."""
    return all(each["engine"].endswith((", running", ", created")) for each in service.jobs().values())


def are_over(service: Controller) -> bool:
    return all(each["over"] for each in service.jobs().values())


@SKIPS["Slurm"]
def test_the_page_of_slurm(small: Cluster, tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    with slurm_on(small, tmp_path / "slurm", more="Licenses=ina_slots:24576") as slurm:
        said = run_page(small, "Slurm", tmp_path, slurm.variables)
    (listed,) = (text.splitlines() for command, text in said.items() if command.startswith("squeue"))
    number, name, state, *_ = listed[1].split()
    assert (name, state) == ("night", "RUNNING"), listed
    assert f"Slurm job {number}, running" in " ".join(said["ina show night"].split())


@SKIPS["Ray"]
def test_the_page_of_ray(small: Cluster, tmp_path: Path) -> None:
    said = run_page(
        small, "Ray", tmp_path, {"RAY_ADDRESS": ray_on(small, {"p1": 0, **dict.fromkeys(MACHINES, 2)})}
    )
    (table,) = (text for command, text in said.items() if "placement_group_table" in command)
    assert "'name': 'ina night'" in table
    assert "'state': 'CREATED'" in table
    assert "Ray placement group" in " ".join(said["ina show night"].split())
