"""The page that says which policies to use: the command that makes it, and its rule."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from benchmarks.pages import which_policy
from benchmarks.pages.families import NAMES, SEEDS, workload
from benchmarks.pages.which_policy import OURS, SIMPLE, SIMPLEST, STACKS, Names, label, to_use
from bmv2_topos.harness import ResultRow
from ina.cli.experiment import experiment


def test_the_quick_page_is_made_by_its_command(tmp_path: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(experiment)
    command = ["benchmarks.pages.which_policy", "--quick", "--processes", "1", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "which-policy.json").read_text())["rows"]
    page = (tmp_path / "which-policy.md").read_text()
    assert [row["family"] for row in rows] == ["usual"]
    assert 0 < rows[0]["deadlines"] <= 24
    assert all(0 <= rows[0][f"{label(names)}.missed"] <= rows[0]["deadlines"] for names in STACKS)
    assert f"`{label(to_use(rows))}`" in page
    assert which_policy.tables(rows) in page


def row(missed: dict[Names, int], others_s: dict[Names, float]) -> ResultRow:
    made: dict[str, float] = {"deadlines": 100}
    for names in (*SIMPLE, OURS):
        made[f"{label(names)}.missed"] = missed.get(names, 50)
        made[f"{label(names)}.others_s"] = others_s.get(names, 100.0)
    return {"family": "any", "seed": 0, **made}


def test_what_misses_fewest_is_used_and_of_equals_the_simplest() -> None:
    assert to_use([row({OURS: 10}, {OURS: 140.0})]) == OURS
    assert to_use([row({OURS: 10, SIMPLE[2]: 11}, {OURS: 102.0})]) == SIMPLE[2]
    assert to_use([row({OURS: 10, SIMPLE[2]: 11}, {OURS: 90.0})]) == OURS
    assert to_use([row({OURS: 10, SIMPLE[2]: 13}, {})]) == OURS
    assert to_use([row({OURS: 50}, {OURS: 98.0})]) == SIMPLEST


def test_each_family_has_the_jobs_and_the_cluster_that_it_is_named_for() -> None:
    made = {name: workload(name, SEEDS[0]) for name in NAMES}
    assert made["usual"] == workload("usual", SEEDS[0]) != workload("usual", SEEDS[1])
    sizes = {name: {job.workers for job in jobs} for name, (jobs, _) in made.items()}
    assert max(sizes["one giant"]) == made["one giant"][1].gpus // 2
    assert max(sizes["all small"]) <= 4
    assert all(size % 2 for size in sizes["odd sizes"])
    assert {job.arrival_s for job in made["all at once"][0]} == {0.0}
    sums = {name: sum(switch.aggregates for switch in at.switches) for name, (_, at) in made.items()}
    assert (sums["usual"], sums["5 % of switches sum"], sums["no switch memory"]) == (6, 1, 0)
    assert len({link.rate_bps for link in made["mixed link rates"][1].links}) == 3
