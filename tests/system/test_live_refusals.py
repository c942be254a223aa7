"""Real jobs that fail, or that make no sense: retries, and what is refused before anything starts."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.controller.simulator.commands import schedule
from tests.system.command import ROOT, good, here, refused
from tests.system.test_interleave import job_file

# Does five steps, saves, and breaks until ten are done.
FRAIL = """
import sys
from pathlib import Path

saved = Path(sys.argv[1])
done = int(saved.read_text()) if saved.exists() else 0
print("goes on at", done)
saved.write_text(str(done + 5))
sys.exit(0 if done == 10 else 7)
"""


def jobs_file(folder: Path, command: str, name: str = "a") -> Path:
    return job_file(folder / "jobs.toml", {"name": name, "workers": 1, "duration_s": 15, "command": command})


@pytest.mark.parametrize(("retries", "failed"), [(2, 0), (1, 1)])
def test_a_job_that_fails_goes_on_where_it_saved(tmp_path: Path, retries: int, failed: int) -> None:
    script, saved = tmp_path / "frail.py", tmp_path / "saved"
    script.write_text(FRAIL)
    jobs = jobs_file(tmp_path, f"{sys.executable} {script} {saved}", name="[/frail]")
    done = here(
        "schedule",
        "live",
        "--jobs",
        jobs,
        "--policy",
        "fifo",
        "--gpus",
        1,
        "--retries",
        retries,
        "--json",
        status=failed,
    )
    metrics = json.loads(done.stdout)["metrics"]
    assert (metrics["failed"], metrics["ended"], metrics["retries"]) == (failed, 1 - failed, retries)
    begun = [int(number) for number in re.findall(r"goes on at (\d+)", done.stderr)]
    assert begun == [0, 5, 10][: retries + 1]
    if failed:
        assert "1 of 1 jobs failed; [/frail]: rank 0 exited with status 7" in done.stderr


def test_a_job_without_room_on_the_switch_fails(tmp_path: Path) -> None:
    """It is alone there, so that nobody will make room for it."""
    jobs = jobs_file(tmp_path, "true")
    said = refused(
        "schedule", "live", "--jobs", jobs, "--policy", "fifo", "--gpus", 1, "--slots", 10**6, status=1
    )
    assert re.search(r"1 of 1 jobs failed; a: .*1,?000,?000 slots", said), said


def test_a_name_in_brackets_is_no_style(tmp_path: Path) -> None:
    jobs = jobs_file(tmp_path, "true", name="[/x]")
    done = good("schedule", "live", "--jobs", jobs, "--policy", "fifo", "--gpus", 1)
    assert "│ [/x]" in done.stdout


@pytest.mark.parametrize(
    ("command", "options", "complaint"),
    [
        ("sh -c 'exit", (), "No closing quotation; want the program"),
        (" ", (), "want the program and its arguments"),
        ("true", ("--policy", "fifo,srtf"), "--policy fifo,srtf: want one"),
        ("true", ("--policy", "best"), "policy 'best' is unknown"),
        (
            *("true", ("--policy", "synergy:srtf+tune")),
            "synergy:srtf+tune: it divides CPUs and memory, which 'ina schedule live' cannot do",
        ),
        ("true", ("--interval", "inf"), "--interval inf: want a finite number"),
        ("true", ("--rate", "-1"), "--rate -1: want 0 or more"),
    ],
)
def test_jobs_and_options_that_make_no_sense(
    tmp_path: Path, command: str, options: tuple[str, ...], complaint: str
) -> None:
    ran = schedule("live", "--jobs", jobs_file(tmp_path, command), "--policy", "fifo", *options)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.complaint
    assert "\n" not in ran.complaint.strip()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--cores", "x"), "--cores 'x': want two of"),
        (("--cores", "0"), "--cores '0': want two of"),
        (("--cores", "0,0,0"), "want two of"),
        (("--cores", "9998,9999"), "want two of"),
        (("--rate", "1e-9"), "--rate 1e-09: want 0, or 1e+06 and more"),
        (("--rate", "inf"), "--rate inf: want a finite number"),
        (("--size", "99999999GB"), "--size 99999999GB: "),
        (("--groups", "deep+"), "unknown job ''"),
        (("--groups", "deep+shallow"), "unknown job 'shallow'; want load, augment, deep, wide, even"),
        (("--groups", "deep"), "'deep': 1 job in one group; want 2 to 4"),
        (("--groups", "+".join(["deep"] * 5)), "5 jobs in one group; want 2 to 4"),
        (("--groups", ","), "no group"),
        (("--size", "much"), "--size 'much' is not a size"),
        (("--size", "1KB"), "want at least 100663296 bytes, the size of the largest batch"),
    ],
)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_measurements_that_make_no_sense(options: tuple[str, ...], complaint: str) -> None:
    ran = schedule("interleave", *options)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.complaint
    assert "\n" not in ran.complaint.strip()


def test_a_network_with_more_slots_than_the_switch_that_stands_for_it(tmp_path: Path) -> None:
    racks = (ROOT / "examples" / "cluster" / "racks.toml").read_text()
    cluster = tmp_path / "large.toml"
    cluster.write_text(racks.replace("slots = 1024", "slots = 100_000", 1))
    jobs = jobs_file(tmp_path, "true")
    said = refused("schedule", "live", "--jobs", jobs, "--cluster", cluster, "--policy", "fifo")
    assert re.search(r"--cluster: switch \w+ has 100,000 slots; the program of live jobs has", said)
