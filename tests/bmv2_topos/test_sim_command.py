from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from controller.vocabulary import BadSpec
from ina.cli.commands import for_typer
from ina.cli.errors import USAGE, verdict
from ina.cli.sim import sim

JOBS = """
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
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS)
    return path


def call(*arguments: object) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(for_typer(sim))
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_json_has_every_job_and_is_the_same_twice(jobs: Path) -> None:
    results = [
        json.loads(call(jobs, "--lanes", 32, "--loss", 0.01, "--seed", 3, "--json").stdout) for _ in range(2)
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
def test_the_table_is_for_people(jobs: Path, options: tuple[object, ...]) -> None:
    done = call(jobs, "--lanes", 32, *options)
    assert done.exit_code == 0, done.output
    assert "completion time" in done.stdout
    assert "elements checked, all exact" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tree", "ring"), "--tree 'ring': want numbers from 1 to 32 joined by x, such as 2x4"),
        (("--tree", "1x2"), "job 'one' has 4 workers; a tree of 1x2 has 2 places"),
        (("--tree", "2x2", "--transit", "s9"), "--transit s9: want some of s1, s2, s3"),
        (("--program", "exclusive", "--slots", 3), "1 private slots; the program exclusive takes 2"),
        (("--loss", 2), "all links: loss is 2, must be a probability"),
        (("--tree", "2x2", "--link-loss", 2), "links between switches: loss is 2, must be a probability"),
        (("--delay", -1), "all links: delay_s is -1, must be 0 or more"),
        (("--rate", "inf"), "all links: rate_bps is inf, must be 0 or more, and at most 1e+15"),
        (
            ("--program", "atp", "--preempt"),
            "--preempt: the program atp has no priorities: it lacks register",
        ),
        (("--plot", "x.bmp"), "--plot x.bmp: want a name that ends in .svg, .png, .pdf"),
    ],
)
def test_wrong_usage_says_what_would_be_right(jobs: Path, options: tuple[object, ...], message: str) -> None:
    failure = call(jobs, *options).exception
    assert failure is not None
    said, code = verdict(failure)
    assert code == USAGE
    assert message in said


def test_a_job_file_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text("[[job]]\nworkers = 0\n")
    assert isinstance(call(path).exception, BadSpec)


@pytest.mark.parametrize("name", ["sim", "three_jobs"])
def test_the_examples_run(name: str) -> None:
    done = call(EXAMPLES / f"{name}.toml", "--iterations", 1, "--slots", 256, "--json")
    assert done.exit_code == 0, done.output
    for job in json.loads(done.stdout)["jobs"].values():
        assert job["iterations"] == 1
        assert job["checked_elements"] > 0


def test_two_racks_of_four_with_loss_between_the_switches(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text("[[job]]\nname = 'one'\nworkers = 8\niterations = 3\nlayers_bytes = [20000, 12000]\n")
    for program in ("shared", "exclusive"):
        done = call(path, "--tree", "2x4", "--link-loss", 0.05, "--program", program, "--json")
        assert done.exit_code == 0, done.output
        result = json.loads(done.stdout)
        assert result["jobs"]["one"]["checked_elements"] == 8 * 3 * 8000
        assert result["metrics"]["lost_packets"] > 0


@needs_matplotlib
def test_a_plot_is_drawn(jobs: Path, tmp_path: Path) -> None:
    plot = tmp_path / "sim.svg"
    done = call(jobs, "--lanes", 32, "--plot", plot)
    assert done.exit_code == 0, done.output
    assert plot.read_text().startswith("<?xml")


def test_more_workers_than_a_switch_has_bits_for(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text("[[job]]\nworkers = 33\n")
    assert "33" in str(call(path, "--lanes", 32).exception)
