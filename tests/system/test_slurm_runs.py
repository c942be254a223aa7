"""The controller's jobs as jobs of a real Slurm: slurmctld, and a slurmd on each of four machines."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import effort
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import Cluster, cluster, until
from tests.system.engines import Service, output
from tests.system.slurm_nodes import SLURM, slurm_on

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
REASON = REASON or ("" if SLURM else "needs slurmctld, slurmd, srun, sbatch and munged")
pytestmark = [
    effort.if_thorough(),
    pytest.mark.netns,
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.slow,  # forty processes in Python, and Slurm's patience with a node that is lost
]
GPUS = 6
LICENCES = 4 * 8192
NAMES = [f"j{number}" for number in range(8)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        with cluster(tmp_path_factory.mktemp("cluster"), gpus=GPUS) as made:
            yield made


@pytest.fixture(scope="module")
def slurm(here: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    more = f"SlurmdTimeout=20\nLicenses=ina_slots:{LICENCES}"
    with slurm_on(here, tmp_path_factory.mktemp("slurm"), cpus=GPUS, more=more) as running:
        yield running.variables


def in_slurm(here: Cluster, slurm: dict[str, str]) -> dict[str, tuple[str, str, set[str]]]:
    """Return number, state and nodes of each job that Slurm has, by name."""
    found = {}
    for line in output(here, slurm, "squeue", "--noheader", "--format=%j|%i|%T|%N").splitlines():
        name, number, state, nodes = line.split("|")
        hosts = output(here, slurm, "scontrol", "show", "hostnames", nodes).split() if nodes else []
        found[name] = number, state, {*hosts}
    return found


def test_slurm_waits_for_slots_and_sbatch_may_be_killed(
    here: Cluster, slurm: dict[str, str], tmp_path: Path
) -> None:
    """Slots are licences; a job whose sbatch was killed after it had submitted it runs once."""
    killed = tmp_path / "killed"
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(
        f'#!/bin/sh\n{shutil.which("sbatch")} "$@" || exit\n'
        f"if [ ! -e {killed} ]; then touch {killed}; kill -9 $$; fi\n"
    )
    sbatch.chmod(0o755)
    path = {"PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
    other = ("sbatch", "--parsable", f"--licenses=ina_slots:{LICENCES}", "--output=/dev/null")
    number = output(here, slurm, *other, "--wrap=sleep 1000").strip()

    options = ["--executor", "slurm", "--licence", "ina_slots", "--memory", "static"]
    service = Service(here, tmp_path, slurm | path, options)
    service.submit({"name": "due", "servers": ["h1", "h3"]})
    service.until(lambda: service.jobs()["due"]["engine"].endswith("pending (Licenses)"))
    assert killed.exists()
    assert not service.sums("due")
    output(here, slurm, "scancel", number)
    service.until(lambda: service.sums("due"))
    job = service.jobs()["due"]
    assert job["standing"] == "granted"
    slots = sum(each["slots"] for each in job["slots"].values())
    assert f"Used={slots} " in output(here, slurm, "scontrol", "show", "licenses")
    (tmp_path / "stop").touch()
    service.until(lambda: service.states()["due"] == "completed")
    assert (tmp_path / "due").read_text() == "x"
    service.stop()


def test_slurm_runs_eight_jobs_where_the_controller_wants(
    here: Cluster, slurm: dict[str, str], tmp_path: Path
) -> None:
    """Both have the same view of them, whoever is killed; a node that is lost ends nothing for good."""
    options = ["--executor", "slurm", "--licence", "ina_slots", "--placement", "gpu-balance"]
    service = Service(here, tmp_path, slurm, options)
    service.submit(*({"name": name} for name in NAMES))
    service.until(lambda: all(map(service.sums, NAMES)))
    ours, theirs = service.jobs(), in_slurm(here, slurm)
    assert theirs.keys() == {*NAMES}
    for name, (number, state, nodes) in theirs.items():
        assert (state, nodes) == ("RUNNING", {*ours[name]["servers"]}), name
        assert ours[name]["engine"] == f"Slurm job {number}, running"
    assert {server for job in ours.values() for server in job["servers"]} == {"h1", "h2", "h3", "h4"}

    service.kill()
    service.start()
    again = service.jobs()
    assert {name: (job["engine"], job["starts"]) for name, job in again.items()} == {
        name: (job["engine"], 1) for name, job in ours.items()
    }

    ended, *others = NAMES
    output(here, slurm, "scancel", theirs[ended][0])
    service.until(lambda: service.states()[ended] == "failed")
    assert service.jobs()[ended]["reason"].startswith(f"Slurm job {theirs[ended][0]}, cancelled")

    lost = {name for name in others if "h4" in ours[name]["servers"]}
    here.signal_machine("h4", signal.SIGKILL)
    service.until(lambda: all(service.jobs()[name]["starts"] == 2 for name in lost))
    service.until(lambda: {*service.states().values()} == {"failed", "running"})
    moved = service.jobs()
    for name in others:
        assert "h4" not in moved[name]["servers"]
        assert moved[name]["starts"] == (2 if name in lost else 1), name
    (tmp_path / "stop").touch()
    service.until(lambda: {*service.states().values()} == {"failed", "completed"})
    assert {name: (tmp_path / name).read_text() for name in others} == dict.fromkeys(others, "x")
    until(lambda: not here.jobs(), 60.0)
    service.until(lambda: not service.audit()["found"])
    service.stop()
