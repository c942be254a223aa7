from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.cli.errors import Failure
from controller.cli.schedule import app

TRACE = str(Path(__file__).with_name("small_muri.csv"))


def test_policies_side_by_side() -> None:
    result = CliRunner().invoke(
        app, ["--trace", TRACE, "--nodes", "2", "--policy", "coded:srtf,coded:muri-s", "--verify", "--json"]
    )
    assert result.exit_code == 0
    metrics = json.loads(result.stdout)["metrics"]
    assert {name: round(values["avg_jct_s"], 2) for name, values in metrics.items()} == {
        "coded:srtf": 6380.26,
        "coded:muri-s": 8288.27,
    }


def test_a_table_of_generated_jobs() -> None:
    result = CliRunner().invoke(app, ["--generate", "30", "--policy", "fifo,muri-s"])
    assert result.exit_code == 0
    assert "30 jobs on 8 x 8 GPUs" in result.stdout
    assert "muri-s" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "best"], "policy 'best' is unknown"),
        (["--trace", TRACE, "--nodes", "1"], "asks for 16 GPUs; the cluster has 8"),
        (["--trace", TRACE, "--format", "xml"], "format 'xml' is unknown"),
    ],
)
def test_wrong_usage_says_what_is_wrong(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, Failure)
    assert complaint in str(result.exception)
