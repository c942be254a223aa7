"""``ina run --log``: a line of JSON for each collective of each rank."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostlib.io.joblog import JobLog
from tests.system.command import here, worker

LANES = 32
TIMES = 20
LENGTH = 1000


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Read a log, all of which must be whole lines."""
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_each_collective_of_each_rank_has_a_line_and_each_job_its_beginning_and_end(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("of an earlier run")
    shared = ("--program", "shared", "--slots", 16, "--loss", 0.02)
    command = worker("sums.py", "--times", TIMES, "--length", LENGTH)
    done = here("run", "-np", 2, "--lanes", LANES, *shared, "--json", "--log", path, *command)
    assert done.returncode == 0, done.stderr
    first, *lines = lines_of(path)
    assert (first["event"], first["name"], first["workers"]) == ("start", "", 2)
    assert {line["job"] for line in lines} == {first["job"]}
    for rank in range(2):
        own = [line for line in lines if line.get("rank") == rank]
        assert [line["event"] for line in own] == ["collective"] * TIMES + ["exit"]
        for number, line in enumerate(own[:-1]):
            assert line["number"] == number
            assert line["what"] == f"sum of {LENGTH} float32"
            assert line["bytes"] == 4 * LENGTH
            assert line["error"] is None
            assert line["time_s"] > 0
            assert line["result_packets"] >= -(-LENGTH // LANES)
        assert (own[-1]["status"], own[-1]["reason"]) == (0, "exited with status 0")
    metrics = json.loads(done.stdout)["metrics"]
    collectives = [line for line in lines if line["event"] == "collective"]
    for name in ("sent_packets", "resent_packets"):  # a worker may still answer after its last collective
        assert 0 < sum(line[name] for line in collectives) <= metrics[name]
    end = lines[-1]
    assert end["event"] == "end"
    assert end["fallback_results"] == metrics["fallback_results"] > 0
    assert end["switch_completed_packets"] == metrics["switch_completed_packets"]


def test_jobs_of_a_file_are_told_apart_and_failures_are_in_the_log(tmp_path: Path) -> None:
    sums = " ".join(worker("sums.py", "--times", 5, "--length", 100)[1:])
    dies = " ".join(worker("sums.py", "--victim", 0, "--kill-at", 3)[1:])
    file = tmp_path / "jobs.toml"
    file.write_text(
        f"[[job]]\nname = 'good'\nworkers = 2\ncommand = '{sums}'\n"
        f"[[job]]\nname = 'bad'\nworkers = 2\ncommand = '{dies}'\n"
    )
    path = tmp_path / "run.jsonl"
    assert here("run", "--lanes", LANES, "--jobs", file, "--log", path).returncode == 1
    lines = lines_of(path)
    jobs = {line["name"]: line["job"] for line in lines if line["event"] == "start"}

    def of(name: str, event: str) -> Iterator[dict[str, Any]]:
        return (line for line in lines if line["event"] == event and line["job"] == jobs[name])

    assert len(list(of("good", "collective"))) == 2 * 5
    reasons = {line["rank"]: (line["status"], line["reason"]) for line in of("bad", "exit")}
    assert reasons == {0: (137, "killed by SIGKILL"), 1: (5, "exited with status 5")}
    assert [line["error"] for line in of("bad", "collective") if line["rank"] == 1] == [None] * 3 + [
        "PeerLost"
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere/run.jsonl", "No such file or directory"),
        ("", "a directory"),
        ("/dev/null", "not a regular file: several workers cannot append to it"),
    ],
)
def test_a_log_that_cannot_be_written_is_refused_before_anything_starts(
    tmp_path: Path, name: str, reason: str
) -> None:
    done = here("run", "--log", tmp_path / name, "--", "touch", tmp_path / "started")
    assert done.returncode == 2
    assert done.stderr == f"ina: --log {tmp_path / name}: {reason}\n"
    assert not (tmp_path / "started").exists()


def test_a_pipe_in_the_place_of_the_log_holds_up_nobody(tmp_path: Path) -> None:
    """Who may write to the log's folder could put it there once the run has begun."""
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="No such device"):
        JobLog(str(tmp_path / "log"))


def test_a_full_disk_ends_the_log_with_a_warning_only(caplog: pytest.LogCaptureFixture) -> None:
    log = JobLog("/dev/full")
    log.write("start", job=1)
    log.write("end", job=1)
    log.close()
    assert caplog.messages == ["/dev/full: No space left on device; nothing more is logged"]
