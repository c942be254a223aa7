"""Groups that take turns, and jobs under a live policy: real processes, real stages, the real switch."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks.schedulers.interleave import tables
from bmv2_topos.harness.page import with_tables
from controller.policies.grouping.rounds import efficiency, round_s
from controller.simulator.traces import read
from hostlib.interleave.stages import Iteration
from ina.bench.interleave import pool, steady
from tests.controller.simulator.commands import schedule
from tests.system.command import ROOT, good, refused

SCRIPT = ROOT / "examples" / "four_stages.py"

# Trains until the other job has been there, and ten iterations more.
LONG = """
import sys
from pathlib import Path
import numpy as np
import hostlib as ina
from hostlib import interleave

saved, flag = map(Path, sys.argv[1:])
number = int(saved.read_text()) if saved.exists() else 0
print("goes on at", number)
more = 10
ina.init()
with interleave.join(ina.rank()) as timer:
    while more:
        with timer.iteration(), timer.stage("network"):
            ina.allreduce(np.ones(1, np.float32))
        number += 1
        draft = saved.with_suffix(".draft")
        draft.write_text(str(number))
        draft.replace(saved)
        more -= flag.exists()
ina.shutdown()
"""

FAILING = """
import sys
import hostlib as ina
from hostlib import interleave

ina.init()
with interleave.join(ina.rank()) as timer:
    for number in range(3):
        with timer.iteration(), timer.stage("cpu"):
            if number == 2:
                sys.exit(7)
"""


def train(iterations: int, *options: object) -> str:
    words = ["--iterations", iterations, "--hidden", 16, "--batch", 16, *options]
    return " ".join([sys.executable, str(SCRIPT), *map(str, words)])


def job_file(path: Path, *jobs: dict[str, object]) -> Path:
    lines = []
    for job in jobs:
        lines += ["[[job]]", *(f"{key} = {json.dumps(value)}" for key, value in job.items())]
    path.write_text("\n".join(lines))
    return path


def test_a_group_is_measured_beside_what_was_predicted() -> None:
    done = good(
        "schedule", "interleave", "--groups", "deep+wide", "--iterations", 6, "--size", "96MB", "--json"
    )
    result = json.loads(done.stdout)
    assert "| deep + wide | " in tables(result)
    (group,) = result["jobs"].values()
    alone = [result["setup"]["alone"][kind] for kind in ("deep", "wide")]
    stages = [tuple(each["stages_s"]) for each in alone]
    assert all(stage_s > 0 for each in stages for stage_s in each)
    assert stages[0][2] == max(stages[0])
    assert stages[1][3] == max(stages[1])
    assert group["predicted_round_s"] == pytest.approx(round_s(stages, group["offsets"]))
    assert group["measured_efficiency"] == pytest.approx(efficiency(stages, group["measured_round_s"]))
    # whatever else the machine did: what is measured, the server of turns has heard from both
    assert [each["iterations"] for each in group["together"]] == [3, 3], "but for the first two and the last"
    assert group["measured_speedup"] == pytest.approx(
        sum(
            one["iteration_s"] / many["iteration_s"]
            for one, many in zip(alone, group["together"], strict=True)
        )
    )
    together = [tuple(each["stages_s"]) for each in group["together"]]
    assert group["contended_round_s"] == pytest.approx(round_s(together, group["offsets"]))


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page needs the lines <!-- measured -->"):
        with_tables("# A page\n", "")


def test_runs_are_put_together_rank_by_rank_without_their_ends() -> None:
    first, last, kept = (Iteration((0.0, 0.0, float(number), 0.0), float(number)) for number in (7, 8, 1))
    run = steady([[first, first, kept, kept, last], [first, first, kept, first, last]])
    assert pool([run, run]) == [[kept] * 4, [kept, first, kept, first]]


def test_a_long_job_makes_room_and_goes_on_where_it_was(tmp_path: Path) -> None:
    script, saved, flag = (tmp_path / name for name in ("long.py", "saved", "short-was-here"))
    script.write_text(LONG)
    jobs = job_file(
        tmp_path / "jobs.toml",
        {
            "name": "long",
            "workers": 1,
            "duration_s": 1e9,
            "command": f"{sys.executable} {script} {saved} {flag}",
        },
        {"name": "short", "workers": 1, "arrival_s": 1.5, "duration_s": 20, "command": f"touch {flag}"},
    )
    done = good("schedule", "live", "--jobs", jobs, "--policy", "srtf", "--gpus", 1, "--json")
    result = json.loads(done.stdout)
    log = [(entry["event"], entry["jobs"]) for entry in result["setup"]["log"]]
    assert log == [
        ("submitted", ["long"]),
        ("started", ["long"]),
        ("submitted", ["short"]),
        ("stopped", ["long"]),
        ("started", ["short"]),
        ("ended", ["short"]),
        ("started", ["long"]),
        ("ended", ["long"]),
    ]
    assert result["jobs"]["long"]["preemptions"] == 1
    assert result["jobs"]["short"]["finish_s"] < result["jobs"]["long"]["finish_s"]
    begun = [int(number) for number in re.findall(r"goes on at (\d+)", done.stderr)]
    assert begun[0] == 0
    assert int(saved.read_text()) == begun[-1] + 10


def test_a_job_that_fails_is_named_and_its_partner_starts_again(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    common = {"workers": 1, "duration_s": 20, "iteration_s": 1}
    jobs = job_file(
        tmp_path / "jobs.toml",
        {"name": "good", **common, "stages_s": [0.5, 0, 0.4, 0.1], "command": train(20)},
        {"name": "bad", **common, "stages_s": [0, 0.5, 0.4, 0.1], "command": f"{sys.executable} {script}"},
    )
    said = refused("schedule", "live", "--jobs", jobs, "--gpus", 1, status=1)
    assert "1 of 2 jobs failed; bad: rank 0 exited with status 7" in said
    log = [line.partition(" s  ")[2] for line in said.splitlines() if " s  " in line]
    assert any(line.startswith("started good, bad: on GPU 0: 2 interleave, efficiency") for line in log)
    assert "interrupted good: its group failed: job bad, rank 0: SystemExit: 7" in log
    assert log[log.index("started good: on GPU 0: alone") + 1].startswith("ended good")


def test_the_example_says_how_many_iterations_its_commands_do() -> None:
    for job in read(ROOT / "examples" / "schedule" / "live.toml"):
        assert f"{SCRIPT.relative_to(ROOT)} --iterations {job.iterations:.6g} " in job.extra["command"]


def test_a_job_without_a_command_is_refused(tmp_path: Path) -> None:
    jobs = job_file(tmp_path / "jobs.toml", {"name": "idle", "workers": 1, "duration_s": 20})
    ran = schedule("live", "--jobs", jobs)
    assert ran.code == 2
    assert "job 'idle' has no command" in ran.complaint


def test_stage_times_that_nobody_gave_are_measured_first(tmp_path: Path) -> None:
    jobs = job_file(
        tmp_path / "jobs.toml",
        {"name": "a", "workers": 1, "duration_s": 12, "command": train(12, "--views", 200)},
        {"name": "b", "workers": 1, "duration_s": 12, "command": train(12, "--masks", 200)},
    )
    done = good("schedule", "live", "--jobs", jobs, "--gpus", 1, "--profile", 4)
    measured = {
        line[0]: [float(word) for word in re.findall(r"[\d.]+", line.partition(":")[2])]
        for line in done.stderr.splitlines()
        if re.match(r"[ab]: storage", line)
    }
    assert measured["a"][1] == max(measured["a"][:4])  # views are made in the CPU stage
    assert measured["b"][2] == max(measured["b"][:4])
    assert re.search(r"started (a, b|b, a): on GPU 0: 2 interleave, efficiency", done.stderr)


def test_a_program_that_marks_no_stages_cannot_be_measured(tmp_path: Path) -> None:
    jobs = job_file(
        tmp_path / "jobs.toml",
        {"name": "plain", "workers": 1, "duration_s": 1, "command": f"{sys.executable} -c 0"},
    )
    said = refused("schedule", "live", "--jobs", jobs, "--gpus", 1, "--profile", 4, status=1)
    assert "job plain: no iteration has ended: there is no profile yet after 0 iterations" in said
    assert "its program must mark its stages" in said
