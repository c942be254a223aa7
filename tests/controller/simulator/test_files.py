"""What the commands say of each job."""

from __future__ import annotations

import csv
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.simulator.files import whole
from tests.controller.simulator.commands import schedule


def test_a_file_appears_when_all_of_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "result.svg"
    with whole(path) as draft:
        assert draft.suffix == ".svg"
        draft.write_text("half")
        assert not path.exists()
        draft.write_text("all of it")
    assert path.read_text() == "all of it"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_interrupt_the_older_file_is_as_it_was(
    tmp_path: Path, write_file: Callable[[str, str], Path], error: type[BaseException]
) -> None:
    path = write_file("result.json", "older")

    def interrupted() -> None:
        with whole(path) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    target.write_text("older")
    link.symlink_to(target)
    with whole(link) as draft:
        draft.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    with whole(pipe) as place:
        place.write_text("through the pipe")
    reader.join()
    assert heard == ["through the pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with pytest.raises(FileNotFoundError) as caught, whole(path) as draft:
        draft.read_text()
    assert caught.value.filename == str(path)


JOBS = """name,arrival_s,duration_s,gpus,restart_s,storage_s,cpu_s,gpu_s,network_s
long,0,100,1,5,0.2,0.2,0.4,0.2
short,10,10,1,0,0.4,0.2,0.2,0.2
"""


@pytest.fixture
def jobs(write_file: Callable[[str, str], Path]) -> Path:
    return write_file("jobs.csv", JOBS)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_became_of_each_job_is_a_line(jobs: Path, tmp_path: Path) -> None:
    common = ("--trace", jobs, "--nodes", 1, "--gpus", 1, "--processes", 1)
    found = tmp_path / "found.csv"
    assert schedule("simulate", "--policy", "srtf,fifo", *common, "--jobs-csv", found).code == 0
    lines = rows(found)
    assert [(line["policy"], line["name"]) for line in lines] == [
        *(("srtf", "short"), ("srtf", "long")),
        *(("fifo", "long"), ("fifo", "short")),
    ]
    # 5 s of start, 5 s of work, 10 s of the other, 5 s of start, the other 95 s
    assert {key: float(value) for key, value in lines[1].items() if key not in ("policy", "name")} == {
        **{"load": 1, "seed": 0, "arrival_s": 0, "start_s": 0, "finish_s": 120, "jct_s": 120, "waited_s": 10},
        **{"alone_s": 100, "slowdown": 1.2, "gpus": 1, "starts": 2, "preemptions": 1},
    }


def test_sweep_and_tune_write_it_too(tmp_path: Path) -> None:
    few = ("--generate", 8, "--nodes", 1)
    swept, tuned = tmp_path / "swept.csv", tmp_path / "tuned.csv"
    assert schedule("sweep", "--policy", "srtf", "--seeds", "0-1", *few, "--jobs-csv", swept).code == 0
    assert [line["seed"] for line in rows(swept)] == ["0"] * 8 + ["1"] * 8
    arguments = ("tune", "--policy", "las", "--try", "quantum_s=60,600", *few, "--jobs-csv", tuned)
    assert schedule(*arguments).code == 0
    assert len(rows(tuned)) == 8


def test_a_directory_has_it_and_the_tables_have_median_and_slowdown(jobs: Path, tmp_path: Path) -> None:
    output = ("--processes", 1, "--output", tmp_path / "o")
    ran = schedule("simulate", "--policy", "srtf", "--trace", jobs, *output)
    assert len(rows(tmp_path / "o" / "jobs.csv")) == 2
    assert "median s" in ran.out
    assert "slowdown" in ran.out
    swept = schedule("sweep", "--policy", "srtf", "--trace", jobs).out
    assert "median s" in swept
    assert "slowdown" in swept


def test_a_place_that_cannot_be_written_is_refused_before_the_work(jobs: Path, tmp_path: Path) -> None:
    for command in ("simulate", "sweep"):
        ran = schedule(command, "--trace", jobs, "--policy", "srtf", "--jobs-csv", tmp_path)
        assert (ran.code, "--jobs-csv" in ran.complaint) == (2, True)


def test_an_explanation_has_numbers_for_who_runs_and_who_waits(jobs: Path) -> None:
    common = ("--jobs", jobs, "--gpus", 1, "--explain", "--json")
    alone = schedule("plan", "--policy", "srtf", *common).json["explain"]
    assert alone["short"][1:] == [
        "asks for 1 GPU x 10 s = 10 GPU-s of service, number 1 of 2 from the least",
        "has its GPUs for itself",
    ]
    assert alone["long"][-1] == (
        "waits: 0 of 1 GPUs are free; of 1 running jobs, 1 ask for less service and 0 arrived earlier"
    )
    shared = schedule("plan", "--policy", "muri-s", *common).json["explain"]
    assert "of its speed; the 2 together do" in shared["short"][2]
    assert "keeps busy: storage" in shared["short"][3]
    assert schedule("plan", "--policy", "sharing:no-sharing", *common).json["explain"]["short"] == [
        "waits: jobs of its kind and size are profiled first, 80 s more",
        alone["short"][1],
        "waits: 1 of 1 GPUs are free, and the policy leaves them free;"
        " of 0 running jobs, 0 ask for less service and 0 arrived earlier",
    ]
