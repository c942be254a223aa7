"""What Slurm's commands write is read; on a real Slurm: tests/system/test_slurm_runs.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ina.service import slurm
from ina.service.engines import EngineChoice
from ina.service.errors import EngineError, ServiceError


def test_jobs_are_read_with_their_states_and_reasons() -> None:
    text = "7|PENDING|Licenses|ina:1:2\n8|RUNNING|None|ina:1:3|x\n9_2|RUNNING|None|other\n5|NODE_FAIL|None|\n"
    waits, runs, other = slurm.jobs_of(text)
    assert waits == slurm.SlurmJob(7, "ina:1:2", "PENDING", "Licenses")
    assert runs == slurm.SlurmJob(8, "ina:1:3|x", "RUNNING")
    assert [job.live for job in (waits, runs, other)] == [True, True, False]


@pytest.mark.parametrize(
    ("state", "trouble", "answers"),
    [
        ("idle", "", True),
        ("mixed*", "", False),
        ("allocated+", "", True),
        ("down*", "Slurm: node h1 is down (Not responding)", False),
        ("draining", "Slurm: node h1 is draining (Not responding)", True),
        ("idle~", "", True),
    ],
)
def test_a_node_is_used_unless_slurm_does_not(state: str, trouble: str, answers: bool) -> None:
    node = slurm.nodes_of(f"h1|{state}|Not responding\n")["h1"]
    assert (node.trouble, node.answers) == (trouble, answers)


def test_a_batch_is_on_the_nodes_that_were_chosen_and_is_started_once() -> None:
    options = slurm.Batch("a", "ina:1:2", {"h1": 2, "h2": 1}, "/log", licences="ina_slots:8").options()
    wanted = {"--nodes=2", "--ntasks=3", "--nodelist=h1,h2", "--no-requeue", "--licenses=ina_slots:8"}
    assert wanted <= set(options)


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have all commands of Slurm be a script."""
    for name in ("squeue", "sinfo", "scancel", "sbatch", "scontrol"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_command_that_fails_is_named_with_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(
        tmp_path, monkeypatch, "echo 'slurm_load_jobs error: Unable to contact\nslurm controller' >&2; exit 1"
    )
    with pytest.raises(EngineError, match="squeue ended with status 1: slurm_load_jobs error: Unable"):
        slurm.jobs("ina:")


def test_a_command_that_is_killed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands(tmp_path, monkeypatch, "kill -9 $$")
    with pytest.raises(EngineError, match="sinfo ended with signal 9"):
        slurm.nodes()


def test_a_machine_without_slurm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match="cannot run squeue: No such file"):
        slurm.jobs("ina:")


def test_only_slurm_has_licences() -> None:
    with pytest.raises(
        ServiceError, match="licence 'ina_slots': Slurm has licences, executor 'local' has none"
    ):
        EngineChoice(licence="ina_slots")
    with pytest.raises(ServiceError, match="executor 'kubernetes': want one of local, slurm, ray"):
        EngineChoice("kubernetes")  # type: ignore[arg-type]
