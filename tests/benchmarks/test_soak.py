"""The page of the soak adds up runs of the command, and refuses what it cannot add up."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.soak import BadRun, in_order, read, tables
from ina.cli.commands import app


def run(seed: int, schedules: int, path: Path) -> Path:
    words = ["soak", "--seed", str(seed), "--schedules", str(schedules), "--processes", "1", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    path.write_text(done.stdout)
    return path


def test_runs_are_added_up_and_seeds_that_two_of_them_share_are_refused(tmp_path: Path) -> None:
    first, second = run(0, 20, tmp_path / "a.json"), run(20, 5, tmp_path / "b.json")
    page = tables(in_order([read(second), read(first)])[1])
    assert "**25 schedules, 0 of which broke an invariant.**" in page
    assert page.index("| 0..19 |") < page.index("| 20..24 |")
    sent = sum(read(path)[1]["happened"]["worker: sent"] for path in (first, second))
    assert f"| sent | {sent:,} |" in page
    with pytest.raises(BadRun, match="from seed 0 and 0 have schedules in common"):
        in_order([read(first), read(first)])


def test_another_file_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"setup": {"seed": 1}, "metrics": {}}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(BadRun, match="want the output of ina soak --json"):
            read(tmp_path / "x.json")
    with pytest.raises(BadRun, match="No such file"):
        read(tmp_path / "none.json")
