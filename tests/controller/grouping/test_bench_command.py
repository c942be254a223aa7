from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ina.cli.commands import app
from ina.cli.errors import verdict


def bench(*arguments: object) -> tuple[int, str, str]:
    """Run ``ina bench grouping ARGUMENTS``: status, output, complaint."""
    result = CliRunner().invoke(app, ["bench", "grouping", *map(str, arguments)])
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.stdout, result.stderr
    complaint, code = verdict(result.exception)
    return code, result.stdout, complaint


@pytest.mark.parametrize("jobs", [1, 2, 3, 17])
@pytest.mark.parametrize("resources", [2, 4, 6])
@pytest.mark.parametrize("kinds", [0, 1])
def test_few_jobs_and_equal_ones(jobs: int, resources: int, kinds: int) -> None:
    arguments = ("--jobs", jobs, "--resources", resources, "--kinds", kinds, "--exact", "--json")
    code, out, complaint = bench(*arguments)
    assert (code, complaint) == (0, "")
    metrics = json.loads(out)["metrics"]
    assert 0 <= metrics["mean_efficiency"] <= 1
    assert 1 <= metrics["groups"] <= jobs
    assert all(-1e-9 <= value <= 1 for name, value in metrics.items() if name.startswith("loss_round_"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--jobs", 0), "--jobs"),
        (("--jobs", 10**9), "--jobs"),
        (("--resources", 1), "--resources"),
        (("--resources", 7), "--resources"),
        (("--kinds", -1), "--kinds"),
        (("--seed", -1), "--seed"),
        (
            ("--exact", "--jobs", 2001),
            "--exact with --jobs 2001: compares all pairs, so want at most 2000 jobs",
        ),
    ],
)
def test_numbers_out_of_range(arguments: tuple[object, ...], complaint: str) -> None:
    code, out, said = bench(*arguments)
    assert (code, out) == (2, "")
    assert complaint in said


def test_schedulers_are_measured_against_their_targets() -> None:
    result = CliRunner().invoke(app, ["bench", "schedulers", "--share", "0.001", "--json"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["metrics"]["figures"]
    assert [(each["case"]["policy"], each["case"]["jobs"]) for each in figures] == [
        *(("muri-s", 10), ("weave-s", 10), ("weave-s", 50), ("fifo-backfill", 10))
    ]
    for each in figures:
        assert each["ratio"] == pytest.approx(each["processor_s"] / each["case"]["target_s"])
        assert each["memory_bytes"] > 1 << 20
