"""``ina experiment`` on anybody's file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from bmv2_topos.harness.errors import HarnessError
from bmv2_topos.harness.page import rows_of
from controller.errors import BadSpec
from ina.cli.command import FAILED, USAGE, Failure
from ina.cli.commands import for_typer
from ina.cli.experiment import experiment

OWN = """
from bmv2_topos.harness import Study
from beside import FACTOR

def run(size, seed):
    return FACTOR * size * seed

EXPERIMENT = Study(
    title="Own", run=run, sweep={"size": [1, 2, 4]}, seeds=2, measure={"product": lambda found: found}
)
"""


def call(*given: object) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(for_typer(experiment))
    return CliRunner().invoke(app, [str(argument) for argument in given])


def failure(*given: object) -> Failure | HarnessError:
    error = call(*given).exception
    assert isinstance(error, Failure | HarnessError), error
    return error


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    (folder / "beside.py").write_text("FACTOR = 3\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path))  # which also takes back what the command adds to it
    return folder / "own.py"


@pytest.mark.parametrize("processes", [1, 2])
def test_it_writes_where_one_stands(own: Path, processes: int) -> None:
    done = call(own, "--processes", processes)
    assert (done.exit_code, done.exception) == (0, None)
    assert "| 4 | 18 (12..24) |" in done.stdout
    assert {"own/own.json", "own/own.md"} <= set(done.stdout.split())
    rows = rows_of(json.loads(Path("own/own.json").read_text()))
    assert rows[0] == {"size": 1, "seed": 1, "product": 3}
    assert len(rows) == 6
    assert f"ina experiment {own}" in Path("own/own.md").read_text()
    assert [path.name for path in own.parent.glob("*")].count("own") == 0


def test_rows_can_be_checked_printed_and_made_pages_of_again(own: Path) -> None:
    assert call(own, "--processes", 1, "--output", "out").exit_code == 0
    page = Path("out/own.md").read_text()
    assert call(own, "--check", "--output", "out").stdout == "own: the shortest row is reproduced\n"
    Path("out/own.md").unlink()
    assert call(own, "--again", "--output", "out").exit_code == 0
    assert Path("out/own.md").read_text() == page
    printed = call(own, "--json", "--seeds", 1, "--processes", 1)
    assert [row["product"] for row in json.loads(printed.stdout)["own"]] == [3, 6, 12]


def test_a_row_that_differs_fails_the_check(own: Path) -> None:
    assert call(own, "--processes", 1).exit_code == 0
    rows = Path("own/own.json")
    document = json.loads(rows.read_text())
    (columns,) = document["columns"]
    document["rows"][0][1 + columns.index("product")] = 4
    rows.write_text(json.dumps(document))
    done = call(own, "--check")
    assert done.exit_code == FAILED
    assert str(done.exception) == "own is stale: product is 3, but 4 is published (size 1, seed 1)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RUNS = 3\n", "{own} has no EXPERIMENT; it must be a Study or an Experiment"),
        ("EXPERIMENT = [1]\n", "{own}: EXPERIMENT is a list; it must be a Study or an Experiment"),
        (
            OWN.replace('{"size": [1, 2, 4]}', '{"sice": [1]}'),
            "{own}: sweep: run takes no parameter 'sice'; it takes size, seed",
        ),
    ],
    ids=["none", "something else", "a bad parameter"],
)
def test_a_file_without_a_sound_experiment_is_refused(own: Path, text: str, said: str) -> None:
    own.write_text(text)
    refused = failure(own)
    assert refused.exit_code == USAGE
    assert str(refused) == said.format(own=own)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            OWN.replace("return FACTOR", "return 1 // (size - 2) * FACTOR"),
            "the run size 2, seed 1: ZeroDivisionError: integer division or modulo by zero ({own}:6)",
        ),
        (
            "import os\n" + OWN.replace("return", "os._exit(size); return"),
            "the run size 1, seed 1: SystemExit: os._exit(1) ({own}:7)",
        ),
    ],
    ids=["raises", "calls os._exit"],
)
def test_a_run_that_fails_is_named_with_its_line(own: Path, text: str, said: str, processes: int) -> None:
    own.write_text(text)
    failed = failure(own, "--processes", processes)
    assert failed.exit_code == FAILED
    assert str(failed) == said.format(own=own)


def test_a_measure_that_is_no_value_is_named(own: Path) -> None:
    own.write_text(OWN.replace("lambda found: found", "lambda found: [found]"))
    assert "the run size 1, seed 1: TypeError: measure 'product' is [3]; it must be a number" in str(
        failure(own, "--processes", 1)
    )


@pytest.mark.parametrize("source", ["no.py", "no.module"])
def test_what_is_not_there_is_named(source: str) -> None:
    error = call(source).exception
    assert isinstance(error, BadSpec)
    assert re.search(f"{source}: (No such file|ModuleNotFoundError)", str(error))


def test_what_is_no_file_is_named() -> None:
    said = "'my file' is neither a Python file (own.py) nor a module (package.module)"
    assert str(failure("my file")) == said
