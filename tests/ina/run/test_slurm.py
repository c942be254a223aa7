"""What Slurm's commands write is read; on a real Slurm: tests/system/test_cluster_managers.py."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from controller.vocabulary.catalog import named
from ina.errors import EngineError
from ina.run.launch import files, slurm, slurm_runs
from ina.run.launch.orders import RunStatus
from ina.run.launch.slurm_runs import SlurmRuns
from tests.system.command import until


def test_jobs_are_read_with_their_states_and_reasons() -> None:
    text = "7|PENDING|Licenses|ina:1:2\n8|RUNNING|None|ina:1:3|x\nof|two lines\n9_2|RUNNING|None|other\n"
    waits, runs, other = slurm.jobs_of(f"{text}5|NODE_FAIL|None|\n")
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
    node = slurm.nodes_of(f"h1|{state}|Not responding\nsince|noon\n")["h1"]
    assert (node.trouble, node.answers) == (trouble, answers)


def test_a_batch_is_on_the_nodes_that_were_chosen_and_is_started_once() -> None:
    batch = slurm.Batch("a", "ina:1:2", {"h1": 2, "h2": 1}, "/at%j", licences="ina_slots:8")
    assert {*batch.options()} >= {
        *("--nodes=2", "--ntasks=3", "--nodelist=h1,h2", "--no-requeue"),
        *("--licenses=ina_slots:8", "--output=/at%%j"),
    }


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have all commands of Slurm be a script."""
    for name in ("squeue", "sinfo", "scancel", "sbatch", "scontrol"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


FAILURES = {
    "fails": (
        "echo 'slurm_load_jobs error: Unable to contact\nslurm controller' >&2; exit 1",
        "squeue ended with status 1: slurm_load_jobs error: Unable",
    ),
    "is killed": ("kill -9 $$", "squeue ended with signal 9"),
    "is not there": ("", "cannot run squeue: No such file"),
}
"""Script of all commands, "": there is none; what is said."""


@pytest.mark.parametrize(("script", "said"), FAILURES.values(), ids=FAILURES)
def test_a_command_is_named_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    if script:
        commands(tmp_path, monkeypatch, script)
    else:
        monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match=said):
        slurm.jobs("ina:")


@contextlib.contextmanager
def runs_of(folder: Path, monkeypatch: pytest.MonkeyPatch, jobs: str) -> Iterator[SlurmRuns]:
    """Give the runs of a service on a Slurm that has these jobs, and one run that is to be there."""
    monkeypatch.setenv("SQUEUE_PARTITION", "of a user's own commands")
    commands(
        folder,
        monkeypatch,
        f'[ ! -e {folder}/broken -a -z "$SQUEUE_PARTITION" ] || exit 1\n'
        f"[ ${{0##*/}} != squeue ] || cat {folder}/jobs",
    )
    (folder / "jobs").write_text(jobs)
    (folder / "runs" / "3").mkdir(parents=True)
    files.write(folder / "runs" / "3" / "run.json", {})
    monkeypatch.setattr(slurm_runs, "LOOK_S", 0.05)
    with contextlib.closing(SlurmRuns(folder / "runs", "s", named("single-switch:2"))) as runs:
        yield runs


def test_jobs_live_on_while_slurm_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = "7|RUNNING|None|ina:s:3\n8|RUNNING|None|ina:other:3\n"
    with runs_of(tmp_path, monkeypatch, jobs) as runs:
        assert runs.lives(3)
        assert runs.shown(3) == ("Slurm job 7, running", True)
        (tmp_path / "broken").touch()
        until(lambda: "squeue ended with status 1" in runs.shown(3)[0])
        assert runs.lives(3)
        (tmp_path / "jobs").write_text("7|NODE_FAIL|None|ina:s:3\n")
        (tmp_path / "broken").unlink()
        until(lambda: not runs.lives(3))
        assert runs.why_ended(3) == "Slurm job 7, node_fail; it was killed"


def test_a_failure_counts_when_slurm_says_what_ended_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is final: who has cancelled a job does not want it to start again."""
    with runs_of(tmp_path, monkeypatch, "7|COMPLETING|None|ina:s:3\n") as runs:
        failed = RunStatus(ends={"a": "rank 0 was killed"}, lost={"h1": "its command ended"}, over=True)
        files.write(tmp_path / "runs" / "3" / "status.json", asdict(failed))
        status = runs.status(3)
        assert (status.ends, status.over) == ({}, False)
        (tmp_path / "jobs").write_text("7|CANCELLED|None|ina:s:3\n")
        until(lambda: not runs.lives(3))
        status = runs.status(3)
    why = "Slurm job 7, cancelled: ended by Slurm or by a user of Slurm"
    assert status == RunStatus(ends={"a": why}, over=True, final=True, failure=why)


def test_a_job_that_this_service_has_ended_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, for example, because its sbatch was killed after it had submitted it: it starts again."""
    with runs_of(tmp_path, monkeypatch, "7|PENDING|Licenses|ina:s:3\n") as runs:
        ended = tmp_path / "jobs.ended"
        assert runs.shown(3) == ("Slurm job 7, pending (Licenses)", False)
        ended.write_text("7|CANCELLED|None|ina:s:3\n")
        (tmp_path / "scancel").write_text(f"#!/bin/sh\nmv {ended} {tmp_path}/jobs\n")
        runs.stop(3)
        assert runs.shown(3)[0] == "Slurm job 7, cancelled"
        assert runs.status(3) == RunStatus()


def test_a_server_that_slurm_does_not_have_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with runs_of(tmp_path, monkeypatch, "") as runs:
        assert runs.gone() == {"h1": "Slurm has no node h1", "h2": "Slurm has no node h2"}
