"""``ina sim --seeds --sweep``: all combinations, the same in any number of processes, tables and JSON."""

from __future__ import annotations

import json
import signal
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from bmv2_topos.harness import Value, sweep
from bmv2_topos.harness.errors import RunFailed
from bmv2_topos.harness.simulation import OPTIONS, Simulation, read_sweep, study
from controller.vocabulary import BadSpec, Job
from ina.cli.errors import USAGE, Failure
from ina.cli.sim import KEYS
from tests.bmv2_topos.test_sim_command import call
from tests.interrupts import interrupted
from tests.softswitch.script_program import have_compiler

JOBS = """
[[job]]
name = "one"
workers = 2
iterations = 2
layers_bytes = [8192]
compute_s = 1e-4
jitter = 0.2
"""
ONE = Job(name="one", workers=2, iterations=2, layers_bytes=(8192,), compute_s=1e-4, jitter=0.2)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS)
    return path


def test_the_help_lists_the_keys_that_there_are() -> None:
    assert tuple(OPTIONS) == KEYS


def test_every_key_is_a_field_that_takes_its_values() -> None:
    values = {
        **dict.fromkeys(("lanes", "slots", "iterations", "window", "queue", "coalesce", "flows"), "32"),
        **dict.fromkeys(("loss", "link-loss", "rate", "delay", "flow-rate"), "0"),
        **{"program": "exclusive", "preempt": "no", "congestion": "aimd", "tree": "2x2"},
        **{"cluster": "two-racks", "placement": "random", "routing": "ecmp", "memory": "static"},
    }
    found = read_sweep(f"{name}={values[name]}" for name in OPTIONS)
    fields = {OPTIONS[name].field for name in found}
    assert fields <= set(Simulation.__dataclass_fields__)
    assert len(fields) == len(OPTIONS)


def test_all_combinations_run_with_all_seeds(jobs: Path) -> None:
    options = ("--sweep", "slots=0,64", "--sweep", "congestion=fixed,aimd", "--seeds", 2, "--seed", 5)
    found = json.loads(call(jobs, *options, "--processes", 1, "--json").stdout)
    runs = found["metrics"]["runs"]
    assert [(run["slots"], run["congestion"], run["seed"]) for run in runs] == [
        (slots, congestion, seed) for slots in (0, 64) for congestion in ("fixed", "aimd") for seed in (5, 6)
    ]
    assert found["setup"]["seeds"] == [5, 6]
    assert found["setup"]["sweep"] == {"slots": [0, 64], "congestion": ["fixed", "aimd"]}
    first = found["metrics"]["settings"][0]
    times = [run["mean_jct_s"] for run in runs[:2]]
    assert first["mean_jct_s"]["mean"] == pytest.approx(statistics.fmean(times))
    assert (first["mean_jct_s"]["least"], first["mean_jct_s"]["greatest"]) == (min(times), max(times))
    assert first["mean_jct_s"]["deviation"] > 0
    assert {run["aggregated_share"] for run in runs[:4]} == {0}
    assert {run["aggregated_share"] for run in runs[4:]} == {1}


def test_a_run_of_a_sweep_is_the_run_that_its_options_make(jobs: Path) -> None:
    swept = json.loads(call(jobs, "--sweep", "loss=0,0.01", "--seeds", 2, "--processes", 1, "--json").stdout)
    alone = json.loads(call(jobs, "--loss", 0.01, "--seed", 1, "--json").stdout)
    (run,) = (run for run in swept["metrics"]["runs"] if (run["loss"], run["seed"]) == (0.01, 1))
    assert run["mean_jct_s"] == alone["metrics"]["mean_jct_s"]
    assert run["lost_packets"] == alone["metrics"]["lost_packets"] > 0


@pytest.mark.parametrize(
    ("key", "said", "given"),
    [("iterations", 2, 3), ("window", 8, 16), ("preempt", True, False), ("congestion", "aimd", "fixed")],
)
def test_an_option_overrides_what_files_say_of_jobs_and_none_leaves_it(
    key: str, said: Value, given: Value
) -> None:
    one = replace(ONE, **{key: said})  # type: ignore[arg-type]
    for option, found in ((None, said), (given, given)):
        prepared = Simulation(jobs=(one,), **{key: option}).prepared()  # type: ignore[arg-type]
        assert getattr(prepared.jobs[0], key) == found


def test_processes_change_nothing() -> None:
    one = study(Simulation(jobs=(ONE,)), read_sweep(["slots=0,64"]), 1).experiment("sim", "")
    runs = one.scenarios(False)
    assert sweep(one, runs, processes=2) == sweep(one, runs, processes=1)


def test_a_table_has_a_line_for_each_setting(jobs: Path) -> None:
    printed = call(jobs, "--sweep", "slots=0,64", "--seeds", 2, "--processes", 1).stdout
    assert "4 runs, seeds 0 to 1: mean (least..greatest)" in printed
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["0", "64"]
    assert [" 0.0% " in line for line in lines] == [True, False]
    assert [" 100.0% " in line for line in lines] == [False, True]
    assert all("µs (" in line for line in lines)


def test_without_a_sweep_the_seeds_are_summed_up(jobs: Path) -> None:
    printed = call(jobs, "--seeds", 3, "--processes", 1).stdout
    assert "3 runs, seeds 0 to 2: mean (least..greatest)" in printed
    assert "mean completion" in printed


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("slot=3", "there is no 'slot'; keys are program, lanes, slots, iterations, window"),
        ("slots", "want KEY=VALUE,…; keys are program"),
        ("slots=a", "want whole numbers, 0 or more, separated by commas"),
        ("slots=-1", "want whole numbers, 0 or more"),
        ("slots=", "want whole numbers"),
        ("slots=1,1", "a value appears twice"),
        ("loss=2", "want probabilities, 0 to 1"),
        ("loss=nan", "want probabilities, 0 to 1"),
        ("preempt=maybe", "want yes or no"),
        ("tree=2y4", "want numbers joined by x"),
        ("window=0", "want whole numbers, 1 to 65536"),
    ],
)
def test_what_cannot_be_swept_is_refused_with_what_can(text: str, complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint.replace("(", r"\(")):
        read_sweep([text])


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(BadSpec, match="slots is swept already; give all its values at once"):
        read_sweep(["slots=1", "slots=2"])


def test_pictures_and_captures_are_of_one_run(jobs: Path) -> None:
    refused = call(jobs, "--seeds", 2, "--explain")
    assert isinstance(refused.exception, Failure)
    assert refused.exception.exit_code == USAGE


def test_a_run_that_fails_is_named_with_its_values(jobs: Path) -> None:
    failed = call(jobs, "--sweep", "congestion=fixed,x.py:Y", "--processes", 1)
    assert isinstance(failed.exception, RunFailed)
    assert "the run congestion x.py:Y, seed 0: job 'one': congestion x.py:Y: No such file" in str(
        failed.exception
    )


@pytest.mark.skipif(not have_compiler, reason="no C compiler: a process that runs is told by its pipeline")
def test_an_interrupt_of_all_processes_is_told_once(jobs: Path) -> None:
    """As a terminal interrupts them; each process of the pool once wrote a traceback of its own."""
    command = ("sim", jobs, "--seeds", 400, "--iterations", 500, "--processes", 2)
    status, out, said = interrupted(*command, loaded="/pipeline-")
    assert status == 128 + signal.SIGINT
    assert (out, said) == ("", "ina: interrupted by SIGINT\n")
