"""What operators see of a switch's jobs over time: its log of admissions, and numbers for Prometheus."""

from __future__ import annotations

import getpass
import json
import re
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from controller import Member, Part, Registration, connect
from tests.controller import single
from tests.system.attached import open_switch
from tests.system.command import good, here, ina, start, worker

LANES = ("--lanes", 32)
MEMBER = Member(0, 100, "02:00:00:00:00:01", "10.0.0.1", 9000)
SUMS = worker("sums.py", "--times", 3, "--length", 100)


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the events of a log, whose times are of now."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
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


def test_a_log_that_cannot_be_opened_is_named() -> None:
    done = here("switch", "--port", "1=memory", "--log", "/none/jobs.log")
    assert done.returncode == 2
    assert "--log /none/jobs.log: No such file or directory" in done.stderr


def test_a_log_on_a_full_disk_is_named_and_the_switch_goes_on() -> None:
    with open_switch("--log", "/dev/full") as attached:
        good("run", *LANES, *attached.options, *SUMS)


def test_jobs_are_served_for_prometheus() -> None:
    said = Registration("host pid 7", age_s=12.5, name='a "b"\\c', user="ada", goodput_bps=1.5e9)
    with open_switch("--program", "exclusive", *LANES) as attached:
        with connect(attached.address) as controller:
            job = single.admit(controller, Part((MEMBER,), 64), registration=said).job
        process = start("slots", *attached.options[:2], "--metrics-port", 0)
        assert process.stdout is not None
        place = process.stdout.readline().removeprefix("serving ").strip()
        with urlopen(place) as answer:
            text = answer.read().decode()
        labels = rf'job="{job}",name="a \"b\"\\c",user="ada"'
        assert "ina_jobs 1\n" in text
        assert f"ina_job_slots{{{labels}}} 64\n" in text
        assert f"ina_job_age_seconds{{{labels}}} 12.5\n" in text
        assert f"ina_job_goodput_bits_per_second{{{labels}}} 1500000000.0\n" in text
        assert f'ina_job_packets_total{{{labels},outcome="completed"}} 0\n' in text
        described = re.findall(r"^# HELP (\w+) .+\.$", text, re.M)
        assert described == re.findall(r"^# TYPE (\w+) (?:counter|gauge)$", text, re.M)
        attached.switch.kill()
        with pytest.raises(HTTPError, match=r"503.*does not answer"):
            urlopen(place)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert process.returncode == 128 + signal.SIGINT, errors
