"""What the README tells people to type works."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.system.command import ROOT, ina

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for _, block in BLOCKS
    for line in block.splitlines()
    if line.startswith(".venv/bin/ina ")
]
TARGETS = re.findall(r"^make (\w+)", README, flags=re.MULTILINE)


def test_the_readme_has_commands_to_try() -> None:
    assert len(COMMANDS) >= 2
    assert {"demo", "test", "bench"} <= set(TARGETS)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_readme_run(command: str) -> None:
    words = [sys.executable if word == "python" else word for word in shlex.split(command)[1:]]
    done = ina(*words)
    assert done.returncode == 0, done.stderr
    assert "test accuracy 0.9" in done.stdout


def test_python_of_the_readme_runs() -> None:
    (code,) = [block for language, block in BLOCKS if language == "python"]
    done = ina("run", "-np", 2, "--lanes", 32, "--json", "--", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["allreduces"] == 2


@pytest.mark.parametrize("target", TARGETS)
def test_targets_of_the_readme_exist(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_demo_ends_with_a_comparison_that_agrees() -> None:
    done = ina("demo", "--json")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)["metrics"]
    assert metrics["accuracy_switch"] == metrics["accuracy_alone"] > 0.9
    assert 0 < metrics["largest_weight_difference"] <= metrics["allowed_weight_difference"]


def test_benchmarks_print_what_they_promise() -> None:
    done = ina("bench", "allreduce", "-np", 2, "--size", "64KB", "--iterations", 3, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["name"] == "bench allreduce"
    assert {"time_s", "algbw_bps", "floor_time_s"} <= report["metrics"].keys()

    done = ina("bench", "pipeline", "--lanes", 32, "--duration", 0.1, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["ratio_vs_interpreter"] > 1


def test_the_gloo_baseline_is_measured_beside() -> None:
    pytest.importorskip("torch")
    done = ina(
        "bench", "allreduce", "-np", 2, "--size", "64KB", "--iterations", 3, "--baseline", "gloo", "--json"
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)["metrics"]
    assert metrics["ratio_vs_gloo"] == pytest.approx(metrics["gloo_time_s"] / metrics["time_s"])
