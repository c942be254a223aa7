"""The controller's jobs on a real Slurm and on a real Ray: nodes for workers, and the controller's own.

Forty processes in Python, and the patience of these with a node that is lost, take most of the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

pytestmark = [*NETNS, pytest.mark.slow]
GPUS = 6
SHAPE = {"gpus": GPUS}
MACHINES = ("h1", "h2", "h3", "h4")
LICENCES = 4 * 8192
NAMES = [f"j{number}" for number in range(8)]
Variables = Mapping[str, str]
View = dict[str, tuple[str, list[str]]]
"""Number and nodes of each job that a cluster manager runs, by name."""


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


def in_slurm(here: Cluster, variables: Variables) -> View:
    found = {}
    for line in output(here, variables, "squeue", "--noheader", "--format=%j|%i|%T|%N").splitlines():
        name, number, state, nodes = line.split("|")
        assert state == "RUNNING"
        found[name] = number, sorted(output(here, variables, "scontrol", "show", "hostnames", nodes).split())
    return found


def in_ray(here: Cluster, variables: Variables) -> View:
    view = json.loads(output(here, variables, sys.executable, str(WORKERS / "ray_jobs.py"), "view"))
    return {name.removeprefix("ina "): (number, nodes) for name, (number, nodes) in view.items()}


@dataclass(frozen=True)
class Manager:
    """A cluster manager.

    Attributes:
        options: Of a controller whose jobs it runs.
        runs: Runs it on the machines; gives the variables of its users.
        view: What it says of the jobs itself.
        nodes: The nodes of a job, as it lists them, given its servers.
        shown: What the controller says of a job of a number.
        cancel: The command by which its users cancel a job of a number; (): they do not.
    """

    options: Sequence[str]
    runs: Callable[[Cluster, Path], contextlib.AbstractContextManager[Variables]]
    view: Callable[[Cluster, Variables], View]
    nodes: Callable[[Sequence[str]], list[str]]
    shown: str
    cancel: Sequence[str] = ()


MANAGERS = {
    "Slurm": Manager(
        *(["--executor", "slurm", "--licence", "ina_slots"], slurm_runs, in_slurm),
        lambda servers: sorted({*servers}),
        "Slurm job {}, running",
        ["scancel"],
    ),
    "Ray": Manager(["--executor", "ray"], ray_runs, in_ray, sorted, "Ray placement group {}, created"),
}
SKIPS = {
    "Slurm": pytest.mark.skipif(not SLURM, reason="needs slurmctld, slurmd, srun, sbatch and munged"),
    "Ray": pytest.mark.skipif(not RAY, reason="needs ray[train]"),
}


@effort.if_thorough()
@pytest.mark.parametrize("name", [pytest.param(name, marks=SKIPS[name]) for name in MANAGERS])
def test_eight_jobs_run_where_the_controller_wants(here: Cluster, name: str, tmp_path: Path) -> None:
    """Both have the same view of them, whoever is killed; a node that is lost ends nothing for good."""
    manager = MANAGERS[name]
    with manager.runs(here, tmp_path) as own:
        service = Controller.on(here, tmp_path, *manager.options, "--placement", "gpu-balance", **own)
        service.start()
        for each in NAMES:
            service.submit(each, "--until", tmp_path / "stop")
        service.until(lambda: all(map(service.begun, NAMES)))
        ours, theirs = service.jobs(), manager.view(here, own)
        assert theirs.keys() == {*NAMES}
        for each, (number, nodes) in theirs.items():
            assert nodes == manager.nodes(ours[each]["servers"]), each
            assert ours[each]["engine"] == manager.shown.format(number)
        assert {server for job in ours.values() for server in job["servers"]} == {*MACHINES}

        service.kill()
        service.start()
        again = {each: (job["engine"], job["starts"]) for each, job in service.jobs().items()}
        assert again == {each: (job["engine"], 1) for each, job in ours.items()}

        cancelled = NAMES[:1] if manager.cancel else []
        others = [each for each in NAMES if each not in cancelled]
        for each in cancelled:
            output(here, own, *manager.cancel, theirs[each][0])
            service.until(lambda each=each: service.states()[each] == "failed")
            assert service.job(each)["reason"].startswith(f"Slurm job {theirs[each][0]}, cancelled")

        lost = {each for each in others if "h4" in ours[each]["servers"]}
        here.signal_machine("h4", signal.SIGKILL)
        service.until(lambda: all(service.job(each)["starts"] == 2 for each in lost))
        service.until(lambda: all(service.states()[each] == "running" for each in others))
        for each in others:
            moved = service.job(each)
            assert "h4" not in moved["servers"]
            assert moved["starts"] == (2 if each in lost else 1), each
        (tmp_path / "stop").touch()
        service.until(lambda: all(service.states()[each] == "completed" for each in others))
        assert {each: (tmp_path / each).read_text() for each in others} == dict.fromkeys(others, "x")
        until(lambda: not here.jobs())
        service.until(service.clean)
        service.end()


@effort.if_thorough()
@SKIPS["Slurm"]
def test_slurm_waits_for_slots_and_sbatch_may_be_killed(here: Cluster, tmp_path: Path) -> None:
    """Slots are licences; a job whose sbatch was killed after it had submitted it runs once."""
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
        options = [*MANAGERS["Slurm"].options, "--memory", "static"]
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
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path / "testbeds"))
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
