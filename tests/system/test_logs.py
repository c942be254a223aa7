"""What is seen of jobs over time: the logs of runs and of switches, and numbers for Prometheus."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from controller import Member, Part, Registration, connect
from hostlib.io.joblog import JobLog
from tests.controller import single
from tests.system.attached import open_switch
from tests.system.command import finish, good, here, ina, refused, start, worker

# --------------------------------------------------------------------- ``ina run --log``


WIDTH = 32
TIMES = 20
LENGTH = 1000


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Read a log, all of which must be whole lines."""
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_each_collective_of_each_rank_has_a_line_and_each_job_its_beginning_and_end(
    write_file: Callable[[str, str], Path],
) -> None:
    path = write_file("run.jsonl", "of an earlier run")
    shared = ("--program", "shared", "--slots", 16, "--loss", 0.02)
    command = worker("sums.py", "--times", TIMES, "--length", LENGTH)
    done = good("run", "-np", 2, "--lanes", WIDTH, *shared, "--json", "--log", path, *command)
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
            assert line["result_packets"] >= -(-LENGTH // WIDTH)
        assert (own[-1]["status"], own[-1]["reason"]) == (0, "exited with status 0")
    metrics = json.loads(done.stdout)["metrics"]
    collectives = [line for line in lines if line["event"] == "collective"]
    for name in ("sent_packets", "resent_packets"):  # a worker may still answer after its last collective
        assert 0 < sum(line[name] for line in collectives) <= metrics[name]
    end = lines[-1]
    assert end["event"] == "end"
    assert end["fallback_results"] == metrics["fallback_results"] > 0
    assert end["switch_completed_packets"] == metrics["switch_completed_packets"]


def test_jobs_that_fail_leave_the_others_alone_and_failures_are_told_and_in_the_log(
    tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    sums = " ".join(worker("sums.py", "--times", 5, "--length", 100)[1:])
    dies = " ".join(worker("sums.py", "--victim", 0, "--kill-at", 3)[1:])
    file = write_file(
        "jobs.toml",
        f"[[job]]\nname = 'good'\nworkers = 2\narrival_s = 0.5\ncommand = '{sums}'\n"
        f"[[job]]\nname = 'bad'\nworkers = 2\ncommand = '{dies}'\n"
        "[[job]]\nname = 'ugly'\nworkers = 1\ncommand = '/no/such/program'\n",
    )
    path = tmp_path / "run.jsonl"
    done = here("run", "--program", "shared", "--lanes", WIDTH, "--jobs", file, "--log", path, status=1)
    assert done.stderr.splitlines()[-2:] == [
        "ina: job bad: rank 0 killed by SIGKILL",
        "ina: job ugly: cannot run '/no/such/program': No such file or directory",
    ]
    assert "[bad:1] PeerLost" in done.stdout
    assert done.stdout.splitlines().count("[good:0] finished") == 1
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
    said = refused("run", "--log", tmp_path / name, "--", "touch", tmp_path / "started")
    assert said == f"ina: --log {tmp_path / name}: {reason}\n"
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


# --------------------------------------------------------------------- what operators see of a switch


LANES = ("--lanes", 32)
MEMBER = Member(0, 100, "02:00:00:00:00:01", "10.0.0.1", 9000)
SUMS = worker("sums.py", "--times", 3, "--length", 100)


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the events of a log, whose times are of now."""
    for event in (events := lines_of(log)):
        ago = datetime.now().astimezone() - datetime.fromisoformat(event.pop("time"))
        assert timedelta(0) <= ago < timedelta(minutes=5)
    return events


def test_the_log_of_a_switch_says_who_had_which_job_admitted_and_removed(tmp_path: Path) -> None:
    log = tmp_path / "jobs.log"
    with open_switch("--log", log) as attached:
        good("run", *LANES, *attached.options, *SUMS)
        started, loaded, admitted, removed = lines(log)
        with connect(attached.address) as controller:
            job = single.admit(controller, Part((MEMBER,), 2)).job
            # a process of its own, while this one's connection has its port
            assert ina("remove", *attached.options[:2], job).returncode == 0
        bare, gone = lines(log)[4:]
    assert started == {"event": "started"}
    assert loaded["event"] == "program loaded"
    assert re.fullmatch(r"ipv4:127\.0\.0\.1:\d+", loaded["client"])
    assert (admitted["event"], removed["event"]) == ("admitted", "removed")
    assert admitted["client"] == removed["client"] == loaded["client"]
    assert admitted["user"] == removed["user"] == getpass.getuser()
    assert "sums.py --times 3" in admitted["command"]
    assert (admitted["first_slot"], admitted["slots"], admitted["lease_s"]) == (0, 1024, 60.0)
    assert (admitted["job"], admitted["generation"]) == (removed["job"], removed["generation"])
    assert (bare["event"], gone["event"]) == ("admitted", "removed")
    assert bare["job"] == gone["job"] == job
    assert bare["client"] != gone["client"], "another process removed it"
    assert "user" not in bare


def test_a_log_on_a_full_disk_is_named_and_the_switch_goes_on() -> None:
    with open_switch("--log", "/dev/full") as attached:
        good("run", *LANES, *attached.options, *SUMS)


def test_jobs_are_served_for_prometheus() -> None:
    said = Registration("host pid 7", age_s=12.5, name='a "b"\\c', user="ada", goodput_bps=1.5e9)
    with open_switch("--program", "exclusive", *LANES) as attached:
        with connect(attached.address) as controller:
            job = single.admit(controller, Part((MEMBER,), 64), registration=said).job
        process = start("slots", *attached.options[:2], "--metrics-port", 0)
        place = process.stdout.readline().removeprefix("serving ").strip()
        with urlopen(place) as answer:
            text = answer.read().decode()
        labels = rf'job="{job}",name="a \"b\"\\c",user="ada"'
        assert "ina_jobs 1\n" in text
        assert f"ina_job_slots{{{labels}}} 64\n" in text
        assert f"ina_job_age_seconds{{{labels}}} 12.5\n" in text
        assert f"ina_job_goodput_bits_per_second{{{labels}}} 1500000000\n" in text
        assert f'ina_job_packets_total{{{labels},outcome="completed"}} 0\n' in text
        described = re.findall(r"^# HELP (\w+) .+\.$", text, re.M)
        assert described == re.findall(r"^# TYPE (\w+) (?:counter|gauge)$", text, re.M)
        attached.switch.kill()
        with pytest.raises(HTTPError, match=r"503.*does not answer"):
            urlopen(place)
        process.send_signal(signal.SIGINT)
        finish(process, 128 + signal.SIGINT)
