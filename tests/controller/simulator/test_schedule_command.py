"""What the pages of `ina schedule` show is what happens."""

from __future__ import annotations

import builtins
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schedulers.trace_files import SAMPLE as TRACE
from controller.policies.grouping.rounds import Span, best, round_s, spans
from controller.policies.registry import known
from controller.policies.scheduling import BadSpec
from controller.simulator.generate import generate
from controller.simulator.traces import neutral
from controller.vocabulary import Cluster
from ina.cli.schedule.plan import timeline
from tests.controller.simulator.commands import schedule


def test_processes_change_no_figure() -> None:
    arguments = (
        "simulate",
        "--generate",
        40,
        "--policy",
        "srtf,benchmarks.replicas.muri:muri-l,benchmarks.replicas.muri:antman",
        "--json",
    )
    one, two = (schedule(*arguments, "--processes", count).json["metrics"] for count in (1, 2))
    for metrics in (*one.values(), *two.values()):
        assert metrics.pop("wall_s") > 0
    assert one == two


def test_output_has_numbers_and_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = schedule(
        "simulate", "--generate", 40, "--policy", "fifo,muri-s", "--processes", 1, "--json",
        "--output", tmp_path / "deep" / "here",
    )  # fmt: skip
    directory = tmp_path / "deep" / "here"
    assert json.loads((directory / "metrics.json").read_text()) == ran.json
    curves = json.loads((directory / "curves.json").read_text())
    for name, metrics in ran.json["metrics"].items():
        jcts = curves[name]["jct_s"]
        assert len(jcts) == 40
        assert sum(jcts) / 40 == pytest.approx(metrics["avg_jct_s"])
        assert len(curves[name]["time_s"]) == len(curves[name]["busy"]["gpu"]) > 0
    for plot in ("jct.svg", "utilisation.svg"):
        assert "muri-s" in (directory / plot).read_text()


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    simulate = schedule("simulate", "--generate", 5, "--policy", "fifo", "--output", tmp_path)
    assert simulate.code == 0
    assert (tmp_path / "metrics.json").exists()
    assert not (tmp_path / "jct.svg").exists()
    for ran in (
        schedule("sweep", "--generate", 5, "--plot", tmp_path / "x.svg"),
        schedule("plan", "--jobs", TRACE, "--nodes", 2, "--plot", tmp_path / "x.svg"),
    ):
        assert ran.code == 1
        assert "pip install 'ina[plots]'" in ran.complaint


def test_a_pipe_gets_no_progress_bar() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ina", "schedule", "simulate", "--generate", "50", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert set(json.loads(done.stdout)["metrics"]) == {"fifo", "srtf", "muri-s"}


def test_a_trace_arrives_as_many_times_as_fast_as_load_says(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    neutral.write(path, generate(20, Cluster.uniform(1, 8), load=0.01, seed=1))
    arguments = ("simulate", "--trace", path, "--policy", "fifo", "--nodes", 1, "--processes", 1, "--json")
    slow, fast = (schedule(*arguments, "--load", load).json["metrics"]["fifo"] for load in (1, 1000))
    assert fast["makespan_s"] < slow["makespan_s"]
    assert fast["avg_jct_s"] > slow["avg_jct_s"]


ROOT = Path(__file__).parents[3]
TUTORIAL, GUIDE, FILES, REFERENCE, _ = PAGES = [
    (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for page in (
        *("tutorials/first-policy", "guides/writing-policies"),
        *("reference/schedule-files", "reference/schedulers", "guides/own-trace"),
    )
]
COMMANDS = sorted({line for page in PAGES for line in page.splitlines() if line.startswith("ina schedule ")})

SACCT = """\
JobID|User|Partition|State|Submit|Elapsed|AllocTRES
7|ann|gpu|COMPLETED|2026-01-01T08:00:00|01:00:00|cpu=4,gres/gpu=2,mem=8G
8|bob|gpu|COMPLETED|2026-01-01T08:10:00|00:30:00|cpu=4,gres/gpu=1,mem=8G
"""
"""A log as the page on own traces has Slurm write it."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, and the jobs that the tutorial says to save."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (jobs,) = re.findall(r"```csv\n(.*?)```", TUTORIAL, re.DOTALL)
    (tmp_path / "jobs.csv").write_text(jobs)
    (tmp_path / "jobs.log").write_text(SACCT)
    (tmp_path / "cluster.toml").symlink_to(ROOT / "examples/schedule/cluster.toml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("folder")
def test_commands_run(command: str) -> None:
    arguments = shlex.split(command)[2:]
    simulates = arguments[0] in ("simulate", "sweep")
    ran = schedule(*arguments, *(("--processes", 1) if simulates else ()))
    assert ran.code == 0, ran.complaint
    if arguments[0] == "plan":
        drawn = TUTORIAL.split("example:\n\n```\n")[1].split("```")[0]
        assert drawn in ran.out


def test_the_tutorial_has_commands_of_each_kind() -> None:
    shown = {line.split()[2] for line in TUTORIAL.splitlines() if line.startswith("ina schedule ")}
    assert shown == {"simulate", "policies", "plan", "sweep", "tune", "live"}


@pytest.mark.usefixtures("folder")
def test_the_tables_of_the_tutorial_are_what_is_printed() -> None:
    blocks = re.findall(
        r"```\n(ina schedule simulate .*)\n```\n(?:.*\n)*?```\n(\d.*\n(?:[┃│].*\n)+)```", TUTORIAL
    )
    assert len(blocks) == 2
    for command, table in blocks:
        out = schedule(*shlex.split(command)[2:], "--processes", 1).out
        assert without_times(table) <= without_times(out)


def without_times(text: str) -> set[tuple[str, ...]]:
    """Return the lines of a table as cells, but for the last, which tells how long it took."""
    rows = (re.split("[┃│]", line) for line in text.splitlines())
    return {tuple(cell.strip() for cell in row[1:-2]) if len(row) > 1 else (row[0].strip(),) for row in rows}


def test_the_policy_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(compile(code, "writing-policies.md", "exec"), {"__name__": "page"})
    assert float(capsys.readouterr().out) > 0


def test_the_csv_of_the_page_on_files_is_read(write_file: Callable[[str, str], Path]) -> None:
    (text,) = re.findall(r"```\n(name,.*?)```", FILES, re.DOTALL)
    path = write_file("jobs.csv", text)
    assert schedule("simulate", "--trace", path, "--policy", "fifo", "--processes", 1, "--json").code == 0


def test_the_table_of_policies_names_what_there_is() -> None:
    table = REFERENCE.split("## Policies")[1].split("\n## ")[0]
    named = set(re.findall(r"`([a-z0-9-]+)`", table))
    assert {name for name in known() if ":" not in name} <= named


def test_the_error_of_the_reference_is_the_one_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{number},0,{duration},1" for number, duration in enumerate((1, 1, 1, 1, 1, -5))]
    Path("trace.csv").write_text("\n".join(["name,arrival_s,duration_s,gpus", *rows]))
    ran = schedule("simulate", "--trace", "trace.csv")
    assert ran.code == 2
    assert f"ina: {ran.complaint}" in REFERENCE


EXAMPLES = Path(__file__).parents[3] / "examples" / "schedule"
JOBS, CLUSTER = EXAMPLES / "jobs.toml", EXAMPLES / "cluster.toml"

times = st.floats(0.0, 10.0)
profiles = st.integers(2, 4).flatmap(
    lambda k: st.lists(st.tuples(*[times] * k).filter(any), min_size=1, max_size=k)
)


@given(profiles)
def test_spans_are_the_round(jobs: list[tuple[float, ...]]) -> None:
    found = best(jobs)
    boxes = spans(jobs, found.offsets)
    for key in ("job", "resource"):  # neither does two things at once
        for one in boxes:
            for other in boxes:
                if one is not other and getattr(one, key) == getattr(other, key):
                    assert one.end_s <= other.start_s or other.end_s <= one.start_s
    for number, job in enumerate(jobs):
        used = {box.resource: box.end_s - box.start_s for box in boxes if box.job == number}
        assert used == pytest.approx({resource: time for resource, time in enumerate(job) if time}, abs=1e-9)
    assert max(box.end_s for box in boxes) == pytest.approx(round_s(jobs, found.offsets))


def test_the_papers_figure_4_as_text() -> None:
    assert timeline(spans([(2, 1), (1, 2)], [0, 1]), ["cpu", "gpu"], width=6) == [
        "cpu |AAAABB|",
        "gpu |BBBBAA|",
        "    0      3 s",
    ]


def test_short_stages_are_seen_and_nothing_is_cut() -> None:
    assert timeline([Span(0, 0, 0.0, 9.999), Span(1, 0, 9.999, 10.0)], ["gpu"], width=4)[0] == "gpu |AAAB|"


def test_two_jobs_cannot_start_at_one_stage() -> None:
    with pytest.raises(BadSpec, match="want a different one for each"):
        spans([(2, 1), (1, 2)], [1, 1])


def test_the_plan_of_the_example() -> None:
    ran = schedule("plan", "--jobs", JOBS, "--cluster", CLUSTER, "--json")
    assert ran.code == 0
    groups = ran.json["groups"]
    named = sorted(job for group in groups for job in group["jobs"]) + ran.json["waiting"]
    assert len(named) == len(set(named)) == 10
    gpus = [gpu for group in groups for gpu in group["gpus"]]
    assert len(gpus) == len(set(gpus)) <= 4
    for group in groups:
        assert 0 < group["gamma"] <= 1
        assert len(set(group["starts_at"])) == len(group["jobs"])
        assert group["speedup"] > 1
        # a round is as long as its timeline says, times the contention of so many jobs
        contention = {2: 1.33 / 1.015, 3: 1.5 / 1.015, 4: 1.37 / 1.015}[len(group["jobs"])]
        end_s = max(span["end_s"] for span in group["timeline"])
        assert group["iteration_s"] == pytest.approx([end_s * contention] * len(group["jobs"]))


def test_jobs_that_fit_do_not_share() -> None:
    ran = schedule("plan", "--jobs", JOBS, "--nodes", 3, "--gpus", 8, "--json")
    assert {tuple(group["reason"] for group in ran.json["groups"])} == {("alone",) * 10}
    assert ran.json["waiting"] == []


def test_lucid_explains_its_classes() -> None:
    pytest.importorskip("sklearn")
    ran = schedule(
        "plan",
        "--jobs",
        JOBS,
        "--cluster",
        CLUSTER,
        "--policy",
        "lucid:lucid",
        "--set",
        "profiler_nodes=0",
        "--explain",
        "--json",
    )
    pairs = [group for group in ran.json["groups"] if len(group["jobs"]) == 2]
    assert pairs
    assert all(0 < group["speedup"] <= 2 for group in pairs)
    assert len(ran.json["explain"]) == 10
    for lines in ran.json["explain"].values():
        assert "samples like this one" in lines[-1]
    shares = ran.json["explain"][pairs[0]["jobs"][1]][0]
    assert shares.startswith(f"shares with {pairs[0]['jobs'][0]}")


def test_a_history_teaches_durations(tmp_path: Path) -> None:
    for package in ("interpret", "rapidfuzz", "sklearn", "matplotlib"):
        pytest.importorskip(package)
    history, shapes = tmp_path / "history.csv", tmp_path / "deep" / "shapes.svg"
    lines = ["name,arrival_s,duration_s,gpus,user,model"]
    for number in range(40):  # one user's jobs take a minute, the other's an hour
        slow = number % 2
        lines.append(f"{number},{600 * number},{3600 if slow else 60},1,{'slow' if slow else 'quick'},net")
    history.write_text("\n".join(lines) + "\n")
    jobs = tmp_path / "jobs.toml"
    table = '[[job]]\nname = "{0}"\nworkers = 1\nduration_s = 600\nuser = "{0}"\nmodel = "net"\n'
    jobs.write_text("".join(map(table.format, ("slow", "quick", "stranger"))))
    ran = schedule(
        "plan", "--jobs", jobs, "--gpus", 1, "--policy", "qssf", "--history", history, "--explain", "--json",
        "--shapes", shapes,
    )  # fmt: skip
    assert ran.code == 0
    assert ran.json["groups"][0]["jobs"] == ["quick"]
    together = {
        name: float(lines[-1].split()[-2])
        for name, lines in ran.json["explain"].items()
        if "user" not in lines[-1]
    }
    assert together["quick"] < 120 < 1800 < together["slow"]
    assert "user stranger is new" in ran.json["explain"]["stranger"][-1]
    assert shapes.stat().st_size > 1000


def test_synergy_grants_what_a_server_has() -> None:
    ran = schedule("plan", "--jobs", JOBS, "--cluster", CLUSTER, "--policy", "synergy:srtf+tune", "--json")
    for server in ("rack1", "rack2"):
        groups = [group for group in ran.json["groups"] if group["servers"] == [server]]
        assert groups
        assert sum(sum(group["cpus"]) for group in groups) <= 12
        assert sum(sum(group["memory_gb"]) for group in groups) <= 125 + 1e-6


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_plot_of_the_timelines(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / f"plan{suffix}"
    assert schedule("plan", "--jobs", JOBS, "--cluster", CLUSTER, "--plot", plot).code == 0
    assert plot.stat().st_size > 1000


def test_a_cluster_from_a_csv(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("cluster.csv", "name,gpus,cpus,memory_gb,count\nbig,8,24,500,2\nsmall,1,3,,1\n")
    ran = schedule("plan", "--jobs", JOBS, "--cluster", path, "--json")
    assert ran.json["setup"] == {"policy": "muri-s", "servers": 3, "gpus": 17, "unused_keys": []}
