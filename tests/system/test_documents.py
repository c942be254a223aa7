"""What the README and the first tutorial tell people to type works."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.training import speed as training
from ina.bench.allreduce import Operation
from ina.bench.baselines import LIBRARIES
from tests import effort
from tests.system.command import PATIENT, ROOT, good, ina, report

README = (ROOT / "README.md").read_text()
FIRST = README + (ROOT / "docs" / "tutorials" / "first-sum.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", FIRST, flags=re.DOTALL)
COMMANDS = list(
    dict.fromkeys(
        line.split("#")[0].strip()
        for _, block in BLOCKS
        for line in block.splitlines()
        if line.startswith("ina ")
    )
)
THREE_JOBS = next(command for command in COMMANDS if "run" in command and "three_jobs" in command)
TREE = next(command for command in COMMANDS if "--tree" in command)
SHOWN = {
    "run": "test accuracy 0.9",
    "sim": "all exact",
    "schedule simulate": "muri-s",
    "schedule plan": "group 1, gamma 0.",
}
"""What a command of the README prints, among other things."""
TARGETS = sorted(set(re.findall(r"(?:^|`)make (\w+)", README, flags=re.MULTILINE)))


def test_the_readme_has_commands_to_try() -> None:
    assert len(COMMANDS) >= 2
    assert {"demo", "test", "bench"} <= set(TARGETS)


def test_commands_are_typed_the_same_everywhere_once_the_environment_is_active() -> None:
    assert README.index(". .venv/bin/activate") < min(README.index(command) for command in COMMANDS)
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert ".venv/bin/ina" not in page.read_text(), page


def run(command: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the README, with more options in front of what it runs."""
    words = [sys.executable if word == "python" else word for word in shlex.split(command)[1:]]
    end = words.index("--") if "--" in words else len(words)
    patient = PATIENT if words[0] == "run" else ()
    return good(*words[:end], *patient, *more, *words[end:])


def learnt(worker: str, output: str) -> float:
    """Return the test accuracy that a worker ended with."""
    match = re.search(rf"^\[{worker}\] done +test accuracy ([\d.]+)", output, flags=re.MULTILINE)
    assert match, output
    return float(match[1])


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in (THREE_JOBS, TREE)])
def test_commands_of_the_readme_run(command: str) -> None:
    done = run(command)
    (shown,) = (shown for words, shown in SHOWN.items() if f" {words} " in command)
    assert shown in done.stdout


def test_three_jobs_on_too_few_slots_fight_over_them_and_learn_all_the_same() -> None:
    done = run(THREE_JOBS, "--json")
    jobs = json.loads(done.stdout)["jobs"]
    # With as many epochs of the same batches, but alone and without a switch.
    alone = {"short": 0.936, "long": 0.960, "late": 0.936}
    assert jobs.keys() == alone.keys()
    for name, accuracy in alone.items():
        assert learnt(f"{name}:0", done.stderr) == pytest.approx(accuracy, abs=0.01)
        assert jobs[name]["switch_evicted_packets"] > 0
        assert jobs[name]["switch_collided_packets"] > 0
        assert jobs[name]["fallback_merged"] > 0


def test_two_racks_learn_as_one_process_does_and_each_switch_sums() -> None:
    done = run(TREE, "--json")
    assert learnt("0", done.stderr) == pytest.approx(0.960, abs=0.01)
    found = json.loads(done.stdout)
    assert found["metrics"]["resent_packets"] > 0
    assert all(switch["completed_packets"] > 0 for switch in found["switches"].values())
    assert len(found["switches"]) == 3


def test_python_of_the_readme_runs() -> None:
    (code,) = [block for language, block in BLOCKS if language == "python"]
    assert (
        report("run", "-np", 2, "--lanes", 32, "--", sys.executable, "-c", code)["metrics"]["allreduces"] == 2
    )


@pytest.mark.parametrize("target", TARGETS)
def test_targets_of_the_readme_exist(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_demo_ends_with_a_comparison_that_agrees_and_needs_no_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank asked for scikit-learn, in an installation that nobody had told of extras."""
    hidden = "import sys\nsys.modules['sklearn'] = None\n"  # not found, whoever looks
    (tmp_path / "sitecustomize.py").write_text(hidden)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    done = ina("demo", "--json", status=0)
    metrics = json.loads(done.stdout)["metrics"]
    assert metrics["accuracy_switch"] == metrics["accuracy_alone"] > 0.9
    assert 0 < metrics["largest_weight_difference"] <= metrics["allowed_weight_difference"]


def test_benchmarks_print_what_they_promise() -> None:
    options = ("--size", "64KB", "--dtype", "int32", "--iterations", 3, "--json")
    done = good("bench", "allreduce", "-np", 2, *options)
    found = json.loads(done.stdout)
    assert found["name"] == "bench allreduce"
    assert found["setup"]["dtype"] == "int32"
    assert {"time_s", "algbw_bps", "switch_processor_s"} <= found["metrics"].keys()

    assert (
        report("bench", "pipeline", "--lanes", 32, "--duration", 0.1)["metrics"]["ratio_vs_interpreter"] > 1
    )


@pytest.mark.parametrize("collective", effort.some(["allreduce", "all-gather", "broadcast"], every=2))
def test_collectives_are_measured_beside_gloos(collective: str) -> None:
    pytest.importorskip("torch")
    options = ("--size", "100000", "--iterations", 3, "--baseline", "gloo", "--json")
    done = good("bench", "allreduce", "-np", 3, "--collective", collective, *options)
    found = json.loads(done.stdout)
    assert found["setup"]["collective"] == collective
    assert found["setup"]["size_bytes"] == (100_000 if collective == "allreduce" else 99_996)
    metrics = found["metrics"]
    assert metrics["ratio_vs_gloo"] == pytest.approx(metrics["gloo_time_s"] / metrics["time_s"])


def speed(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.speed", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_fallback_server_is_measured_alone() -> None:
    done = speed("fallback", "--contributions", 4000, "--lanes", 32, "-np", 2, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["setup"]["contributions"] == 4000
    metrics = found["metrics"]
    # Summed, checked, and counted in the server's processor time.
    assert metrics["gradient_bps"] == pytest.approx(4000 * 32 * 32 / metrics["cpu_s"])
    assert metrics["wall_gradient_bps"] < metrics["gradient_bps"]


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_the_bench_measures_mpi_where_it_is(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = LIBRARIES[name]
    if library.missing(name) is None:
        for collective in Operation:
            arguments = ("-np", 2, "--size", "64KB", "--iterations", 3, "--baseline", name, "--json")
            found = json.loads(good("bench", "allreduce", "--collective", collective, *arguments).stdout)
            metrics = found["metrics"]
            assert metrics[f"ratio_vs_{name}"] == metrics[f"{name}_time_s"] / metrics["time_s"] > 0
            assert min(metrics[of] for of in (f"{name}_processor_s", "processor_s", "switch_processor_s")) > 0
            assert found["setup"]["machine"]["processors"] >= 1
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    lacking = f"needs {library.launcher[0]} of {library.title}, which is missing: pip install 'ina[mpi]'"
    assert lacking in (library.missing(name) or "")


def test_speeds_of_training_are_beside_gloos_turn_by_turn() -> None:
    speeds = {"gloo": [10.0, 20.0, 10.0], "int32": [15.0, 20.0, 20.0]}
    row = {"rate_bps": 1e8, "hosts": 4, "parameter_bytes": 2e6, "load": 1.0, "samples_per_s": speeds}
    line = "| 100 Mb/s, 4 hosts | 10.0 | 20.0 | **1.50** (1.00..2.00) | 2.0 MB | 1.0 |"
    assert line in training.tables([row])


def test_a_turn_of_training_takes_as_long_as_its_slowest_rank() -> None:
    ranks = [{"samples": 8, "times_s": {"gloo": times}} for times in ([1.0, 2.0], [4.0, 1.0])]
    assert training.together(ranks) == {"gloo": [4.0, 8.0]}
