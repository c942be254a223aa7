"""The page that says which policies to use: the command that makes it, and its rule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.pages import which_policy
from benchmarks.pages.families import LATER, NAMES, ONE_SWITCH, SEEDS, least_missed, workload
from benchmarks.pages.which_policy import (
    DOUBTING,
    OURS,
    PARTS,
    SIMPLE,
    SIMPLEST,
    STACKS,
    Names,
    label,
    to_use,
)
from benchmarks.pages.which_policy_packets import compared
from benchmarks.pages.which_policy_parts import PROMISED
from bmv2_topos.harness import ResultRow
from bmv2_topos.harness.page import rows_of
from controller.policies.registry import SCHEDULER
from controller.simulator.network.run import simulate_network
from controller.simulator.network.speed import NetworkSettings
from controller.vocabulary import Job, fabrics
from ina.cli.experiment import experiment


def test_the_quick_page_is_made_by_its_command(tmp_path: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(experiment)
    command = ["benchmarks.pages.which_policy", "--quick", "--processes", "1", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    rows = rows_of(json.loads((tmp_path / "which-policy.json").read_text()))
    page = (tmp_path / "which-policy.md").read_text()
    assert [row["part"] for row in rows] == ["all", "doubt", "packets"]
    assert 0 < rows[0]["deadlines"] <= 24
    bounds = rows[0]["least"], rows[0]["deadlines"]
    assert all(bounds[0] <= rows[0][f"{label(names)}.missed"] <= bounds[1] for names in STACKS)
    assert rows[0]["promised"] <= rows[0]["deadlines"]
    assert f"`{label(to_use(rows[:1]))}`" in page
    assert which_policy.tables(rows) in page


@pytest.mark.parametrize(
    ("family", "seed", "error", "start_s"),
    [(ONE_SWITCH, 3, 1.0, 0.0), ("overloaded", 3, 0.0, 30.0), ("odd sizes", 5001, 0.0, 30.0)],
)
def test_joint_and_on_time_miss_no_more_than_edf_where_told_wrong_or_starts_are_long(
    family: str, seed: int, error: float, start_s: float
) -> None:
    """Once they missed 4 of 1, 8 and 5 of 4, 3 and 2 of 1."""
    found = which_policy.compared(family, seed, DOUBTING, error=error, start_s=start_s)
    plain, *doubting = (found[f"{label(names)}.missed"] for names in DOUBTING)
    assert all(missed <= plain for missed in doubting)


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


def test_deadlines_that_nobody_meets_are_counted() -> None:
    """Two jobs of all GPUs that are due at the same time, and one that is due before it can be done."""
    star = fabrics.star(3, fabrics.Parts(gpus=2, slots=0))
    wide = Job(name="wide", workers=6, iterations=100, layers_bytes=(1000,), compute_s=0.1, deadline_s=15.0)
    assert least_missed([wide], star) == 0
    assert least_missed([wide, replace(wide, name="other")], star) == 1
    assert least_missed([wide, replace(wide, name="other", arrival_s=5.1)], star) == 0
    assert (
        least_missed([replace(wide, deadline_s=9.0), replace(wide, name="any", deadline_s=None)], star) == 1
    )
    sends = replace(wide, layers_bytes=(10**8,), workers=4)  # 10 ms each, twice that without sums
    assert least_missed([replace(sends, deadline_s=11.5)], star) == 1
    sums = fabrics.star(3, fabrics.Parts(gpus=2))
    assert least_missed([replace(sends, deadline_s=11.5)], sums) == 0


def test_admission_promises_what_there_is_time_for_and_keeps_it() -> None:
    star = fabrics.star(2, fabrics.Parts(gpus=2))
    first = Job(name="first", workers=4, iterations=100, layers_bytes=(1000,), compute_s=0.1, deadline_s=40.0)
    jobs = [first, replace(first, name="second"), replace(first, name="late", deadline_s=60.0)]
    settings = NetworkSettings(placement=SCHEDULER, period_s=0.0)
    found = simulate_network(jobs, star, f"{PARTS}:admitting", settings)
    assert {"first"} == PROMISED - {"second", "late"}
    assert not {each.spec.name for each in found.missed} & PROMISED


def test_stretches_in_packets_last_as_long_as_flows_say() -> None:
    row = compared("usual", "joint", 1, iterations=24)
    assert row["stretches"]
    assert 0 <= float(row["error"] or 0) < 0.1
    assert row["packets_s"] == pytest.approx(row["flows_s"], rel=0.1)


def test_each_family_has_the_jobs_and_the_cluster_that_it_is_named_for() -> None:
    made = {name: workload(name, SEEDS[0]) for name in (*NAMES, *LATER)}
    assert made["usual"] == workload("usual", SEEDS[0]) != workload("usual", SEEDS[1])
    sizes = {name: {job.workers for job in jobs} for name, (jobs, _) in made.items()}
    assert max(sizes["one giant"]) == made["one giant"][1].gpus // 2
    assert max(sizes["all small"]) <= 4
    assert all(size % 2 for size in sizes["odd sizes"])
    assert {job.arrival_s for job in made["all at once"][0]} == {0.0}
    sums = {name: sum(switch.aggregates for switch in at.switches) for name, (_, at) in made.items()}
    assert len(made["fat-tree"][1].switches) == 20
    assert (sums["usual"], sums["5 % of switches sum"], sums["no switch memory"]) == (6, 1, 0)
    assert len({link.rate_bps for link in made["mixed link rates"][1].links}) == 3
