from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.replicas import MURI
from benchmarks.schedulers.trace_files import SAMPLE as TRACE
from controller.simulator.generate import generate
from controller.simulator.traces import neutral
from controller.vocabulary import Cluster
from tests.controller.simulator.commands import schedule


def test_policies_side_by_side() -> None:
    ran = schedule(
        "simulate", "--trace", TRACE, "--nodes", 2, "--policy", f"{MURI}:srtf,{MURI}:muri-s",
        "--verify", "--processes", 1, "--json",
    )  # fmt: skip
    assert ran.code == 0
    assert {name: round(values["avg_jct_s"], 2) for name, values in ran.json["metrics"].items()} == {
        f"{MURI}:srtf": 6380.26,
        f"{MURI}:muri-s": 8288.27,
    }


def test_a_table_of_generated_jobs() -> None:
    ran = schedule("simulate", "--generate", 30, "--policy", "fifo,muri-s", "--processes", 1)
    assert ran.code == 0
    assert "30 jobs on 64 GPUs in 8 servers" in ran.out
    assert "muri-s" in ran.out


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


def test_synergy_and_lucid_have_jobs_and_speed_models_of_their_own() -> None:
    pytest.importorskip("sklearn")
    synergy = schedule(
        "simulate", "--generate", 60, "--load", 2, "--nodes", 2, "--processes", 1, "--verify", "--json",
        "--policy", "synergy:fifo+proportional,synergy:fifo+tune",
    ).json["metrics"]  # fmt: skip
    assert synergy["synergy:fifo+tune"]["avg_jct_s"] < synergy["synergy:fifo+proportional"]["avg_jct_s"]
    lucid = schedule(
        "simulate", "--generate", 60, "--load", 2, "--nodes", 3, "--processes", 1, "--verify", "--json",
        "--policy", "lucid:lucid,lucid:fifo,lucid:tiresias", "--set", "profiler_nodes=0",
    ).json["metrics"]  # fmt: skip
    assert lucid["lucid:lucid"]["avg_jct_s"] < lucid["lucid:fifo"]["avg_jct_s"]


def test_every_order_and_every_allocator_of_synergy_ends_all_jobs() -> None:
    pytest.importorskip("scipy")
    names = schedule("policies", "--json").json["policies"]["synergy"]
    chosen = [name for name in names if name.startswith("synergy:fifo") or name.endswith("+tune")]
    assert len(chosen) == 10
    ran = schedule(
        "simulate", "--generate", 3, "--nodes", 1, "--processes", 1, "--policy", ",".join(chosen), "--json"
    )
    assert {metrics["jobs"] for metrics in ran.json["metrics"].values()} == {3}


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


def test_a_wrong_trace_ends_the_process_with_status_2(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("name,arrival_s,duration_s,gpus\n1,0,-5,1\n")
    done = subprocess.run(
        [sys.executable, "-m", "ina", "schedule", "simulate", "--trace", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"ina: {path}:2: column duration_s: -5 must be positive\n"


def test_a_trace_arrives_as_many_times_as_fast_as_load_says(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    neutral.write(path, generate(20, Cluster.uniform(1, 8), load=0.01, seed=1))
    arguments = ("simulate", "--trace", path, "--policy", "fifo", "--nodes", 1, "--processes", 1, "--json")
    slow, fast = (schedule(*arguments, "--load", load).json["metrics"]["fifo"] for load in (1, 1000))
    assert fast["makespan_s"] < slow["makespan_s"]
    assert fast["avg_jct_s"] > slow["avg_jct_s"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "best"], "policy 'best' is unknown"),
        (["--policy", "fifo,fifo"], "--policy: 'fifo' is given twice"),
        (["--policy", ","], "no policy"),
        (["--trace", TRACE, "--nodes", "1"], "asks for 16 GPUs; the cluster has 8"),
        (["--trace", TRACE, "--format", "xml"], "format 'xml' is unknown"),
        (["--load", "0"], "a load of 0; it must be positive"),
        (["--load", "inf"], "a load of inf; it must be positive"),
        (["--profiles", TRACE], "profiles and pairs need each other"),
        (
            ["--policy", "benchmarks.replicas.muri:srtf,lucid:fifo"],
            "policies of benchmarks.replicas.muri and of lucid need different",
        ),
        (["--policy", "synergy:fifo+tune", "--trace", TRACE, "--nodes", "2"], "has no sensitivity matrix"),
        (["--policy", "lucid:lucid", "--trace", TRACE, "--nodes", "2"], "has no column 'dataset'"),
        (["--policy", "synergy:fifo+tune", "--matrix", "nowhere.csv"], "nowhere.csv"),
        (["--cluster", "nowhere.toml"], "--cluster nowhere.toml: No such file or directory"),
        (["--generate", "0"], ""),
        (["--nodes", "0"], ""),
        (["--processes", "-1"], ""),
    ],
)
def test_wrong_usage_says_what_is_wrong(arguments: list[object], complaint: str) -> None:
    ran = schedule("simulate", *arguments)
    assert ran.code == 2
    assert complaint in ran.complaint
    assert ran.out == ""
