from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from benchmarks.pages import QUESTIONS, RESULTS, load
from benchmarks.pages.__main__ import arguments, listing
from bmv2_topos.harness.page import rows_of
from ina.cli.command import USAGE, Failure
from ina.cli.commands import for_typer
from ina.cli.errors import verdict
from ina.cli.experiment import experiment


def call(*given: object) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(for_typer(experiment))
    command, *rest = arguments([str(argument) for argument in given])
    assert command == "experiment"
    return CliRunner().invoke(app, rest)


def refusal(*arguments: object) -> str:
    error = call(*arguments).exception
    assert error is not None
    message, code = verdict(error)
    assert code == USAGE
    return message


def test_all_experiments_are_listed_as_in_the_index_of_results() -> None:
    listed = listing()
    index = (RESULTS / "README.md").read_text()
    for name, question in QUESTIONS.items():
        assert re.search(rf"^ *{name} +{re.escape(question)}$", listed, re.MULTILINE)
        assert f"| [{name}]({name}.md) | {question} |" in index
        assert load(name).name == name


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_row_of_each_page_comes_out_as_published(name: str) -> None:
    done = call(name, "--check")
    assert (done.exit_code, done.exception) == (0, None)
    assert done.stdout == f"{name}: the shortest row is reproduced\n"


def test_a_stale_row_is_named_and_fails(tmp_path: Path) -> None:
    document = json.loads((RESULTS / "memory.json").read_text())
    (columns,) = document["columns"]
    times = {place for place, name in enumerate(columns, 1) if name.endswith("_s")}
    rows = [[77 if at in times else value for at, value in enumerate(row)] for row in document["rows"]]
    (tmp_path / "memory.json").write_text(json.dumps({**document, "rows": rows}))
    done = call("memory", "--check", "--output", tmp_path)
    assert done.exit_code == 1
    assert re.search(
        r"memory is stale: \w+_s is [0-9.e-]+, but 77 is published \(.*, seed 1\)",
        str(done.exception),
    )


def test_runs_of_one_runner() -> None:
    refused = refusal("memory", "--runner", "netns", "--quick")
    assert refused == "memory has no runs of 'netns'; its runners: virtual"
    done = call("scaling", "--runner", "virtual", "--quick", "--json")
    assert {row["runner"] for row in json.loads(done.stdout)["scaling"]} == {"virtual"}


def test_a_trial_writes_its_page_and_the_page_can_be_made_again(tmp_path: Path) -> None:
    trial = ("deadlines", "--quick", "--seeds", 1, "--processes", 1)
    rows = json.loads(call(*trial, "--json").stdout)["deadlines"]
    assert call(*trial, "--output", tmp_path).exit_code == 0
    assert rows_of(json.loads((tmp_path / "deadlines.json").read_text())) == rows
    page = (tmp_path / "deadlines.md").read_text()
    assert "ina experiment benchmarks.pages.deadlines --quick --seeds 1" in page
    (tmp_path / "deadlines.md").unlink()
    assert call("deadlines", "--again", "--output", tmp_path).exit_code == 0
    assert (tmp_path / "deadlines.md").read_text() == page


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there is no page 'los'; did you mean loss\\?"):
        call("los")
    with pytest.raises(SystemExit, match="there are memory, stragglers"):
        call("x")
    assert refusal("loss", "--seeds", 9) == "loss: 9 seeds, must be 1 to 5, as many as the page has"
    assert "are mutually exclusive" in refusal("loss", "--check", "--quick")


def test_rows_that_are_not_there_or_not_rows_are_refused(tmp_path: Path) -> None:
    for content in (None, "[]", "{", '{"rows": []}'):
        if content is not None:
            (tmp_path / "loss.json").write_text(content)
        error = call("loss", "--check", "--output", tmp_path).exception
        assert isinstance(error, Failure)
        assert "loss.json holds no rows" in str(error)
    shutil.copy(RESULTS / "loss.json", tmp_path)
    document = json.loads((tmp_path / "loss.json").read_text())
    (tmp_path / "loss.json").write_text(json.dumps({**document, "rows": document["rows"][:3]}))
    error = call("loss", "--check", "--output", tmp_path).exception
    assert "loss is stale: 3 rows are published" in str(error)
