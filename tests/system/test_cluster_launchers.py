"""Real launchers on the machines of a cluster: srun with slurmctld and four slurmd, mpirun with daemons."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import PATIENCE_S, Cluster, cluster, until
from tests.system.command import ROOT, succeed
from tests.system.ray_nodes import RAY, ray_on
from tests.system.slurm_nodes import SLURM, slurm_on
from tests.system.test_clusters import ALONE, LOOP, SUM

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]

MPIRUN = shutil.which("mpirun") or shutil.which("mpirun", path=str(Path(sys.executable).parent))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        with cluster(tmp_path_factory.mktemp("cluster")) as made:
            made.serve_fallback()
            yield made


@pytest.fixture(autouse=True)
def nothing_is_left(here: Cluster) -> Iterator[None]:
    """Every test ends with switches that serve no job."""
    yield
    until(lambda: not here.jobs())


@pytest.fixture(scope="module")
def slurm(here: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Run Slurm with a node on each machine, each with its name; give the variables of its users."""
    with slurm_on(here, tmp_path_factory.mktemp("slurm")) as running:
        yield running.variables


def eight_ranks(process: subprocess.Popen[str]) -> None:
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    said = sorted(json.loads(text) for text in re.findall(r"\[\d.*?\]", output))
    assert said == [[rank, True, True, rank % 2 == 0] for rank in range(8)]


@pytest.mark.skipif(not SLURM, reason="needs slurmctld, slurmd, srun and munged")
def test_srun_on_four_nodes(here: Cluster, slurm: dict[str, str]) -> None:
    command = ["srun", "-N4", "-n8", "--ntasks-per-node=2", sys.executable, "-c", SUM]
    eight_ranks(here.start("h1", command, slurm))


@pytest.mark.skipif(not SLURM, reason="needs slurmctld, slurmd, srun and munged")
def test_ina_run_starts_ranks_by_srun(here: Cluster, slurm: dict[str, str]) -> None:
    run = [sys.executable, "-m", "ina", "run", "--hosts", "h1:2,h2:2,h3:2,h4:2"]
    run += ["--launch-with", "srun -N1 -n1 --overlap -w {host} {command}", "--", "python", "-c", SUM]
    process = here.start("h1", run, slurm)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert len(re.findall(r"\[\d, true, true, (?:true|false)\]", output)) == 8


@pytest.mark.skipif(not SLURM, reason="needs slurmctld, slurmd, srun and munged")
def test_an_srun_whose_rank_is_killed_leaves_nothing(here: Cluster, slurm: dict[str, str]) -> None:
    process = here.start("h1", ["srun", "-N4", "-n4", sys.executable, "-uc", LOOP], slurm)
    assert process.stdout is not None
    for _ in range(4):
        assert process.stdout.readline() == "going\n"
    here.signal_ranks("h3", LOOP, signal.SIGKILL)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert errors.count("hostlib.errors.PeerLost") == 3, errors
    assert "lost rank 2: its connection to the launcher closed" in errors


@pytest.mark.skipif(not MPIRUN, reason="needs mpirun")
def test_mpirun_on_four_machines(here: Cluster, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text(f'#!/bin/sh\nmachine=$1; shift\nexec sh {here.enter} "$machine" sh -c "$*"\n')
    agent.chmod(0o755)
    hosts = ",".join(f"{here.state.topology.ip(machine)}:2" for machine in ("h1", "h2", "h3", "h4"))
    command = [str(MPIRUN), "--allow-run-as-root", "--host", hosts, "-n", "8", "--map-by", "slot"]
    command += ["--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_keep_fqdn_hostnames", "1"]
    for name in ("INA_CLUSTER", "INA_TOKEN", "INA_MEETING", "XDG_RUNTIME_DIR", "OMP_NUM_THREADS"):
        command += ["-x", name]
    variables = {"INA_MEETING": f"{here.state.topology.ip('h1')}:29601"}
    eight_ranks(here.start("h1", [*command, sys.executable, "-c", SUM], variables))


@pytest.mark.slow  # Ray's processes on four machines take most of it
@pytest.mark.skipif(not RAY, reason="needs ray[train]")
def test_torch_trainer_of_ray_on_four_nodes(here: Cluster, tmp_path: Path) -> None:
    """Unmodified but for the name of the backend, with the losses of one process with all batches."""
    machines = ("h1", "h2", "h3", "h4")
    address = ray_on(here, dict.fromkeys(machines, 1))
    script = str(ROOT / "tests" / "system" / "workers" / "ray_train.py")
    process = here.start("h1", [sys.executable, script, address, "ina", "4", str(tmp_path)])
    output, errors = process.communicate(timeout=3 * PATIENCE_S)
    assert process.returncode == 0, f"{output}\n{errors}"
    ranks = [json.loads((tmp_path / f"ina-{rank}").read_text()) for rank in range(4)]
    assert {machine for machine, _ in ranks} == {*machines}
    [alone] = succeed([here.start("h1", [sys.executable, "-c", ALONE, "4"])], PATIENCE_S)
    assert [losses for _, losses in ranks] == [pytest.approx(each, abs=1e-3) for each in json.loads(alone)]
