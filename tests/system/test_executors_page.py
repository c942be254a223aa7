"""The terminal sessions of docs/executors.md work, where Slurm or Ray is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests import started
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import Cluster, cluster, until
from tests.system.command import ROOT
from tests.system.console import make_folder, steps
from tests.system.engines import Service, output
from tests.system.ray_nodes import RAY, ray_on
from tests.system.slurm_nodes import SLURM, slurm_on

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON)]
PATIENCE_S = 60.0


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path / "testbeds"))
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", gpus=2) as made:
        yield made


def run_page(here: Cluster, section: str, folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Carry out the sessions of a section on ``p1``; return what each command wrote.

    The controller gets the state and the testbed of the test; a cluster manager that is to be started is
    there already.
    """
    page = (ROOT / "docs" / "executors.md").read_text()
    (text,) = (each for each in page.split("\n## ") if each.startswith(f"{section}\n"))
    (folder / "page").mkdir()
    places = [str(make_folder(folder / "page") / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    own = {**variables, "PATH": ":".join(places), "PYTHONPATH": started.PATH}
    service: Service | None = None
    said = {}
    for command, _ in steps(text):
        words = command.split()
        if words[:2] == ["ray", "start"]:
            continue
        if words[:2] == ["ina", "controller"]:
            assert (words[2], words[4:6]) == ("--state", ["--testbed", "lab"]), command
            service = Service(here, folder, variables, words[6:])
            own["INA_CONTROLLER"] = service.url
            continue
        assert service is not None, command
        said[command] = output(here, own, "sh", "-c", command)
        if words[:2] == ["ina", "submit"]:
            service.until(partial(runs, service))
        if words[:2] == ["ina", "cancel"]:
            service.until(partial(is_over, service))
            assert [*service.states().values()] == ["cancelled"]
    assert service is not None
    until(lambda: not here.jobs(), PATIENCE_S)
    service.stop()
    return said


def runs(service: Service) -> bool:
    """Return whether the cluster manager runs the jobs."""
    return all(each["engine"].endswith((", running", ", created")) for each in service.jobs().values())


def is_over(service: Service) -> bool:
    return all(each["over"] for each in service.jobs().values())


@pytest.mark.skipif(not SLURM, reason="needs slurmctld, slurmd, srun, sbatch and munged")
def test_slurm(here: Cluster, tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    with slurm_on(here, tmp_path / "slurm", more="Licenses=ina_slots:24576") as slurm:
        said = run_page(here, "Slurm", tmp_path, slurm.variables)
    (listed,) = (text.splitlines() for command, text in said.items() if command.startswith("squeue"))
    number, name, state, *_ = listed[1].split()
    assert (name, state) == ("night", "RUNNING"), listed
    assert f"Slurm job {number}, running" in " ".join(said["ina show night"].split())


@pytest.mark.skipif(not RAY, reason="needs ray[train]")
def test_ray(here: Cluster, tmp_path: Path) -> None:
    variables = {"RAY_ADDRESS": ray_on(here, {"p1": 0, **dict.fromkeys(("h1", "h2", "h3", "h4"), 2)})}
    said = run_page(here, "Ray", tmp_path, variables)
    (table,) = (text for command, text in said.items() if "placement_group_table" in command)
    assert "'name': 'ina night'" in table
    assert "'state': 'CREATED'" in table
    assert "Ray placement group" in " ".join(said["ina show night"].split())
