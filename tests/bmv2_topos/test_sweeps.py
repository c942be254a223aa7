"""``ina sim --seeds --sweep``: all combinations, the same in any number of processes, tables and JSON."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from bmv2_topos.harness import BadExperiment, Study, Value, compare, load, read, sweep, with_seeds, write
from bmv2_topos.harness.errors import RunFailed
from bmv2_topos.harness.simulation import OPTIONS, Simulation, read_sweep
from controller.vocabulary import BadSpec, Job
from ina.cli.command import USAGE, Failure
from ina.cli.commands import for_typer
from ina.cli.errors import verdict
from ina.cli.sim import KEYS, sim
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
def jobs(write_file: Callable[[str, str], Path]) -> Path:
    return write_file("jobs.toml", JOBS)


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


def test_links_between_switches_may_lose_when_those_of_hosts_do_not() -> None:
    assert Simulation(jobs=(ONE,), tree="2x1", link_loss=0.1).run().lost_packets > 0


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
        ("slots=1 slots=2", "slots is swept already; give all its values at once"),
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
        read_sweep(text.split())


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


# ---------------------------------------------------------------------------
# Studies: what the harness makes of a function, the parameters to sweep and what to measure.


ROOT = Path(__file__).parents[2]


def run(size: int, kind: str = "a", seed: int = 1, fast: bool = True) -> float:
    return size * seed * (1.0 if kind == "a" else 2.0) * (1.0 if fast else 3.0)


STUDY = Study(
    title="Times",
    run=run,
    sweep={"size": [1, 10], "kind": ["a", "b"]},
    measure={"time (s)": lambda found: found, "kind of": lambda found: "large" if found > 5 else "small"},
    seeds=3,
    ablations={"slow": {"fast": False}},
)
TIMES = STUDY.experiment("times", "times.py")


def test_every_combination_is_run_with_every_seed_and_in_each_ablation() -> None:
    runs = TIMES.scenarios(False)
    assert len(runs) == 2 * 2 * 2 * 3
    assert runs[0].labels == {"variant": "full", "size": 1, "kind": "a", "seed": 1}
    assert len({tuple(each.labels.items()) for each in runs}) == len(runs)
    assert len(TIMES.scenarios(True)) == 2 * 2 * 2
    assert len(with_seeds(runs, 2)) == 2 * 2 * 2 * 2


def test_a_table_has_medians_and_ranges_over_the_seeds() -> None:
    rows = sweep(TIMES, TIMES.scenarios(False))
    assert rows[0] == {
        "variant": "full",
        "size": 1,
        "kind": "a",
        "seed": 1,
        "time (s)": 1.0,
        "kind of": "small",
    }
    full, slow = TIMES.tables(rows).split("### Slow")
    assert "| size | kind | time (s) | kind of |" in full
    assert "| 1 | a | 2 (1..3) | small |" in full
    assert "| 10 | b | 40 (20..60) | large |" in full
    assert "| 1 | a | 6 (3..9) | small, large |" in slow
    assert TIMES.findings(rows) == "- time (s), slow: 3 times as much as full."


def test_the_files_are_rows_a_page_and_a_plot_of_each_quantity(tmp_path: Path) -> None:
    rows = sweep(TIMES, TIMES.scenarios(False))
    files = write(TIMES, rows, tmp_path, command="ina experiment times.py")
    drawn = ["times-time-s.svg"] if importlib.util.find_spec("matplotlib") else []
    assert [file.name for file in files] == ["times.json", "times.md", *drawn]
    page = (tmp_path / "times.md").read_text()
    assert "Swept: `size` (1, 10), `kind` (a, b); 3 seeds. *Slow*: `fast` is False." in page
    for name in drawn:
        plot = (tmp_path / name).read_text()
        assert "kind b, slow" in plot
    _, dashed = STUDY._lines(rows, "time (s)", "size", [1, 10], places=False)
    assert dashed == ["kind a, slow", "kind b, slow"]


def test_without_ablations_or_seeds_there_are_no_columns_for_them() -> None:
    plain = replace(STUDY, ablations={}, seeds=1, run=lambda size, kind: size).experiment("plain", "plain.py")
    rows = sweep(plain, plain.scenarios(False))
    assert [*rows[0]] == ["size", "kind", "time (s)", "kind of"]
    assert "Full" not in plain.tables(rows)
    assert plain.findings(rows) == ""


def test_an_ablation_may_fix_what_is_swept() -> None:
    fixed = replace(STUDY, ablations={"one size": {"size": 5}}).experiment("fixed", "fixed.py")
    labels = [each.labels for each in fixed.scenarios(True) if each.labels["variant"] == "one size"]
    assert labels == [
        {"variant": "one size", "size": 5, "kind": "a", "seed": 1},
        {"variant": "one size", "size": 5, "kind": "b", "seed": 1},
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sweep": {"sice": [1]}}, "sweep: run takes no parameter 'sice'; it takes size, kind, seed, fast"),
        ({"sweep": {"size": []}}, r"sweep: size is \[\]; it must be a list of one value or more"),
        ({"sweep": {"size": "12"}}, "sweep: size is '12'; it must be a list of one value or more"),
        ({"sweep": {"size": [1, 2, 1]}}, "sweep: size has a value twice: 1, 2, 1"),
        ({"sweep": {"kind": ["a"]}}, "run takes 'size', which has no default and is not in sweep"),
        ({"ablations": {"slow": {"quick": 1}}}, "ablation 'slow': run takes no parameter 'quick'"),
        ({"ablations": {"full": {}}}, "'full' is the name of the variant without any ablation"),
        ({"seeds": 0}, "seeds is 0; it must be from 1 to 1000000"),
        ({"run": lambda size, kind, fast=True: 1.0}, "seeds is 3, and run takes no parameter 'seed'"),
        ({"measure": {}}, "measure is empty; it must have a column or more"),
        ({"measure": {"size": lambda found: 1}}, "measure: 'size' is a parameter, too"),
        # parts of the wrong kind
        ({"sweep": {"size": [[1], [2]]}}, r"size has \[1\], which cannot name a row"),
        ({"sweep": {"size": [{"a": 1}]}}, "size has {'a': 1}, which cannot name a row"),
        ({"sweep": {"size": [(1, 2)]}}, r"size has \(1, 2\), which cannot name a row"),
        ({"sweep": {"size": [1.0, float("nan")]}}, "size has nan, which cannot name a row"),
        ({"ablations": {"odd": {"size": [1]}}}, r"ablation 'odd': size is \[1\], which cannot name a row"),
        ({"sweep": ["size"]}, "sweep is of type list; it must be a dict"),
        ({"measure": {"m": 3}}, "measure 'm' is of type int; it must be a function"),
        ({"measure": None}, "measure is None; it must be a dict"),
        ({"run": None}, "run is None; it must be a function"),
        ({"seeds": "3"}, "seeds is of type str; it must be a whole number"),
        ({"seeds": 10**30}, r"seeds is 1\d*; it must be from 1 to 1000000"),
        ({"sweep": {"size": [10**400]}}, "which cannot name a row"),
        ({"measure": {5: float}}, "measure has the name 5; it must be a text"),
        ({"ablations": {5: {"size": 1}}}, "ablations has the name 5; it must be a text"),
        ({"first_seed": 10**5000}, "first_seed is an integer of 16610 bits"),
        ({"title": 5}, "title is 5; it must be a text"),
        ({"about": None}, "about is None; it must be a text"),
        ({"question": "\ud800"}, r"question is '\\ud800'; it must be a text that can be written as UTF-8"),
        ({"measure": {"\ud800": float}}, r"measure has the name '\\ud800'; it must be a text"),
        ({"sweep": {"size": ["\ud800"]}}, r"size has '\\ud800', which cannot name a row"),
        ({"ablations": {"odd": {"fast": "\ud800"}}}, r"ablation 'odd': fast is '\\ud800'"),
        ({"ablations": {"slow": 3}}, "ablation 'slow' is of type int; it must be a dict of parameters"),
    ],
)
def test_what_makes_no_sense_is_named(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadExperiment, match=f"^own.py: .*{complaint}"):
        replace(STUDY, **changes).experiment("own", "own.py")  # type: ignore[arg-type]


def test_the_example_has_about_twenty_lines_and_runs() -> None:
    example = ROOT / "examples" / "losses.py"
    assert sum(bool(line.strip()) for line in example.read_text().splitlines()) <= 25
    found = load(str(example))
    rows = sweep(found, found.scenarios(True), quick=True)
    assert len(rows) == 2 * 2 * 2
    assert all(row["packets sent again"] for row in rows if row["loss"])
    assert found.findings(rows).count("without probes") == 2


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "guides" / "experiments.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert code in (ROOT / "examples" / "losses.py").read_text()


@pytest.mark.parametrize(
    "sizes", [np.arange(1, 12, 9), [*np.linspace(1, 10, 2)], (np.float32(0.5), np.int8(3))]
)
def test_numbers_of_numpy_are_numbers(sizes: Any) -> None:
    given = {"size": sizes, "kind": np.array(["a", "b"])}
    measure = {"time (s)": lambda found: np.float32(found), "found": lambda _: np.int64(3)}
    ablations: Any = {"slow": {"fast": np.bool_(False), "size": np.int64(7)}}
    own = Study(title="t", run=run, sweep=given, measure=measure, seeds=np.int64(2), ablations=ablations)
    plain = replace(
        own,
        sweep={"size": [each.item() for each in sizes], "kind": ["a", "b"]},
        measure={"time (s)": float, "found": lambda _: 3},
        seeds=2,
        ablations={"slow": {"fast": False, "size": 7}},
    )
    found, wanted = (study.experiment("x", "x.py") for study in (own, plain))
    rows = json.dumps(sweep(found, found.scenarios(False)))
    assert rows == json.dumps(sweep(wanted, wanted.scenarios(False)))
    assert found.about == wanted.about


def found(size: int, seed: int = 1) -> float:
    return (float("nan"), float("inf"), size)[seed - 1]


def test_what_is_no_number_is_null_and_reproduced(tmp_path: Path) -> None:
    study = Study(title="t", run=found, sweep={"size": [1]}, measure={"a|b": lambda value: value}, seeds=3)
    one = study.experiment("x", "")
    rows = sweep(one, one.scenarios(False))
    assert [row["a|b"] for row in rows] == [None, "inf", 1]
    write(one, rows, tmp_path, command="c")
    text = (tmp_path / "x.json").read_text()
    assert not re.search("NaN|Infinity", text)
    published, _ = read(one, tmp_path)
    assert compare(one, published, count=3) == []
    assert "| size | a\\|b |" in (tmp_path / "x.md").read_text()
    assert "| 1 | 1, -, inf |" in (tmp_path / "x.md").read_text()


FOUR_AND_TWO = """
[[job]]
name = "one"
workers = 4
iterations = 2
layers_bytes = [1200, 3600]
compute_s = 1e-4
window = 32

[[job]]
name = "two"
workers = 2
iterations = 3
compute_s = 1e-4
layers_bytes = [256]
"""

EXAMPLES = Path(__file__).parents[2] / "examples"

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


@pytest.fixture
def both(write_file: Callable[[str, str], Path]) -> Path:
    return write_file("jobs.toml", FOUR_AND_TWO)


def call(*arguments: object) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(for_typer(sim))
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_json_has_every_job_and_is_the_same_twice(both: Path) -> None:
    results = [
        json.loads(call(both, "--lanes", 32, "--loss", 0.01, "--seed", 3, "--json").stdout) for _ in range(2)
    ]
    for result in results:
        assert result["metrics"].pop("wall_time_s") > 0
    assert results[0] == results[1]
    assert list(results[0]["jobs"]) == ["one", "two"]
    one = results[0]["jobs"]["one"]
    assert one["checked_elements"] == 4 * 2 * 1200
    assert one["wrong_elements"] == 0
    assert len(one["iteration_s"]) == one["iterations"] == 2
    assert len(one["occupied_slots"]) == len(results[0]["metrics"]["occupancy_time_s"])


@pytest.mark.parametrize(
    "options",
    [
        ("--program", "exclusive", "--slots", 64),
        ("--slots", 0),
        ("--program", "atp", "--slots", 16, "--loss", 0.01),
        ("--tree", "2x2", "--link-loss", 0.05),
        ("--tree", "2x2x1", "--transit", "s2,s3", "--preempt", "--window", 64, "--iterations", 1),
    ],
)
def test_the_table_is_for_people(both: Path, options: tuple[object, ...]) -> None:
    done = call(both, "--lanes", 32, *options)
    assert done.exit_code == 0, done.output
    assert "completion time" in done.stdout
    assert "elements checked, all exact" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tree", "ring"), "--tree 'ring': want numbers from 1 to 32 joined by x, such as 2x4"),
        (("--tree", "1x2"), "job 'one' has 4 workers; a tree of 1x2 has 2 hosts"),
        (("--tree", "2x2", "--transit", "s9"), "--transit s9: want names of switches: s1, s2, s3"),
        (("--program", "exclusive", "--slots", 3), "1 private slots; a job of the program exclusive needs 2"),
        (("--loss", 2), "all links: loss is 2, must be a probability"),
        (("--tree", "2x2", "--link-loss", 2), "links between switches: loss is 2, must be a probability"),
        (("--delay", -1), "all links: delay_s is -1, must be 0 or more"),
        (("--rate", 1e16), "all links: rate_bps is 1e+16, must be 0 or more, and at most 1e+15"),
        (
            ("--program", "atp", "--preempt"),
            "--preempt: the program atp has no priorities: it lacks register",
        ),
        (("--plot", "x.bmp"), "--plot x.bmp: want a name that ends in .svg, .png, .pdf"),
    ],
)
def test_wrong_usage_says_what_would_be_right(both: Path, options: tuple[object, ...], message: str) -> None:
    failure = call(both, *options).exception
    assert failure is not None
    said, code = verdict(failure)
    assert code == USAGE
    assert message in said


@pytest.mark.parametrize("name", ["sim", "three_jobs"])
def test_the_examples_run(name: str) -> None:
    done = call(EXAMPLES / f"{name}.toml", "--iterations", 1, "--slots", 256, "--json")
    assert done.exit_code == 0, done.output
    for job in json.loads(done.stdout)["jobs"].values():
        assert job["iterations"] == 1
        assert job["checked_elements"] > 0


@needs_matplotlib
def test_a_plot_is_drawn(both: Path, tmp_path: Path) -> None:
    plot = tmp_path / "sim.svg"
    done = call(both, "--lanes", 32, "--plot", plot)
    assert done.exit_code == 0, done.output
    assert plot.read_text().startswith("<?xml")
