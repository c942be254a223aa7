from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.grouping.efficiency import Span, best, round_s, spans
from controller.policies.scheduling import BadSpec
from ina.cli.schedule.plan import timeline
from tests.controller.simulator.commands import schedule

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


def test_the_plan_as_text() -> None:
    ran = schedule("plan", "--jobs", JOBS, "--cluster", CLUSTER)
    assert "muri-s: 10 jobs on 4 GPUs" in ran.out
    assert "rack1:0,1" in ran.out
    assert "storage |A" in ran.out


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


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "c.toml",
            "[[server]]\nname = 'a'\n[[server]]\nname = 'a'\n",
            "c.toml:4: two servers are called 'a'",
        ),
        ("c.toml", "[[server]]\ncpus = 2\n", "c.toml:1: server 0: name is missing"),
        ("c.toml", "[[server]]\nname = 'a'\nwheels = 4\n", "c.toml:3: server 'a': unknown key 'wheels'"),
        ("c.toml", "[[node]]\ngpus = 1\n", "c.toml:1: node is not a key: want server"),
        ("c.toml", "gpus = 2\n", "c.toml:1: unknown key 'gpus'"),
        ("c.toml", "[[node]\n", "not TOML"),
        ("c.toml", "", "a cluster needs at least one server"),
        ("c.csv", "name,gpus\na,2\na,2\n", "c.csv:3: column name: node 'a' was on line 2 already"),
        ("c.csv", "name,gpus,memory_gb\na,2,-1\n", "c.csv:2: column memory_gb: -1 must be positive"),
        ("c.csv", "name,gpus\n", "no nodes in it"),
    ],
)
def test_clusters_are_refused_by_line_and_column(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    ran = schedule("plan", "--jobs", JOBS, "--cluster", path)
    assert ran.code == 2
    assert complaint in ran.complaint


def test_a_cluster_from_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "cluster.csv"
    path.write_text("name,gpus,cpus,memory_gb,count\nbig,8,24,500,2\nsmall,1,3,,1\n")
    ran = schedule("plan", "--jobs", JOBS, "--cluster", path, "--json")
    assert ran.json["setup"] == {"policy": "muri-s", "servers": 3, "gpus": 17, "unused_keys": []}


def test_wrong_usage() -> None:
    for arguments, complaint in (
        (("--jobs", JOBS, "--policy", "fifo,srtf"), "want one"),
        (("--jobs", JOBS, "--shapes", "x.svg"), "--shapes needs --history"),
        (("--jobs", JOBS, "--history", JOBS, "--shapes", "x.bmp"), "want a name that ends in .svg"),
        (("--jobs", JOBS, "--plot", "plan.bmp"), "want a name that ends in .svg"),
        (("--jobs", JOBS, "--policy", "benchmarks.replicas.muri:muri-s"), "3 are needed"),
        (("--jobs", JOBS, "--gpus", 1), "asks for 2 GPUs; the cluster has 1"),
        ((), ""),
    ):
        ran = schedule("plan", *arguments)
        assert ran.code == 2, ran
        assert complaint in ran.complaint
