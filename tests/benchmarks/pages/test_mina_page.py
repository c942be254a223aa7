"""The page on MINA: the command that makes it, and what its trial shows."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from benchmarks.pages import mina
from benchmarks.pages.mina_runs import (
    BASELINE,
    HERE,
    INVERTED,
    MINA,
    OURS,
    PREEMPTIVE,
    PUBLISHED,
    SHARED,
    SIMPLEST,
    STACKS,
    THERE,
)
from bmv2_topos.harness import number, selected
from bmv2_topos.harness.page import rows_of
from ina.cli.commands import for_typer
from ina.cli.experiment import experiment


def test_the_quick_page_is_made_by_its_command(tmp_path: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(for_typer(experiment))
    command = ["benchmarks.pages.mina", "--quick", "--processes", "1", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    rows = rows_of(json.loads((tmp_path / "mina.json").read_text()))
    page = (tmp_path / "mina.md").read_text()
    assert mina.tables(rows) in page
    assert "nan" not in page
    (replayed,) = selected(rows, part=PUBLISHED)
    assert abs(number(replayed, "efficiency") - number(replayed, "published")) < 5e-5
    (there,) = selected(rows, part=THERE)
    efficiency = {name: number(there, f"{name}.efficiency") for name in STACKS}
    assert efficiency[BASELINE] < efficiency[SHARED] < efficiency[PREEMPTIVE] < 1
    assert efficiency[INVERTED] < efficiency[MINA] < 1
    (here,) = selected(rows, part=HERE)
    assert all(number(here, f"{name}.mean_s") > 0 for name in OURS)
    assert mina.against_simplest([here], SIMPLEST) == 0.0


def test_one_published_model_gains_from_the_network_at_the_published_rate() -> None:
    assert mina.gaining_models(100) == ["opt-125m"]
    assert len(mina.gaining_models(25)) == 7
