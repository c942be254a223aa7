"""Trials of pages show what the pages are about."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from benchmarks.pages import (
    atp,
    cluster_validation,
    deadlines,
    deadlines_runs,
    loss,
    memory,
    regions,
    stragglers,
    together,
    together_runs,
    validation_runs,
)
from benchmarks.pages.index import QUESTIONS, load
from bmv2_topos.harness import Experiment, ResultRow, column, number, selected, sweep, write
from bmv2_topos.harness.page import BEGIN, END, rows_of
from tests import effort


def test_a_page_keeps_its_sentences_and_gets_new_tables(tmp_path: Path) -> None:
    rows: list[ResultRow] = [
        {
            "jobs": 1,
            "program": program,
            "slots": slots,
            "iteration_s": time,
            "aggregated_share": 0.5,
            "longest_iteration_s": 5.0,
            "fallback_bytes_per_iteration": 0.0,
        }
        for program, slots, time in (
            ("shared", 0, 4.0),
            ("shared", 64, 1.25),
            ("atp", 0, 4.0),
            ("atp", 64, 2.5),
            ("exclusive", 64, 2.0),
        )
    ]
    page = tmp_path / "memory.md"
    page.write_text(f"# Own title\n\nOwn words.\n\n{BEGIN}\nold\n{END}\n\nMore words.\n")
    files = write(memory.EXPERIMENT, rows, tmp_path, command="python -m something")
    text = page.read_text()
    assert text.startswith(f"# Own title\n\nOwn words.\n\n{BEGIN}\n### 1 job\n")
    assert text.endswith(f"{END}\n\nMore words.\n")
    assert "| 64 | 100% | 50% | 62% | 50.0% | 0.00 MB | 1250.00 ms | 5000.00 ms |" in text
    assert "| 0 | 31% | 31% | cannot run |" in text
    assert "old" not in text
    assert rows_of(json.loads((tmp_path / "memory.json").read_text())) == rows
    for file in files:
        assert file.exists()
        assert file.suffix == ".md" or file.suffix == ".json" or f"({file.name})" in text


def shared_slots_serve_even_without_memory(rows: list[ResultRow]) -> None:
    without = [row for row in rows if row["slots"] == 0]
    assert [row["aggregated_share"] for row in without] == [0.0] * 4
    for jobs, program in itertools.product(memory.JOBS, ("shared", "atp")):
        by_slots = list(memory.speeds(rows, jobs, program).values())
        assert 0 < by_slots[0] < by_slots[1] <= by_slots[2] * 1.01


def a_straggler_keeps_slots_from_a_healthy_job(rows: list[ResultRow]) -> None:
    both = [row for row in rows if row["jobs"] == "healthy+straggling"]
    assert [row["control"] for row in both] == list(stragglers.CONTROLS)
    for row in both:
        slots, factor = int(number(row, "slots")), int(number(row, "factor"))
        (healthy,) = stragglers.cost(rows, str(row["control"]), slots, factor).healthy
        assert healthy > 1.02
        assert number(row, "healthy_share") < 1


def a_job_does_not_notice_that_its_region_changes(rows: list[ResultRow]) -> None:
    for loss_ in (0.0, 1e-3):
        none, moved = (
            column(rows, "resent", loss=loss_, changes=changes)
            for changes in (regions.NONE, regions.CONSISTENT)
        )
        assert none == moved
        (slowdown,) = regions.slowdowns(rows, "one switch", loss_, regions.CONSISTENT)
        assert slowdown.across < regions.TARGET
    (at_once,) = column(rows, "resent", loss=0.0, changes=regions.AT_ONCE)
    assert at_once > 100


def slots_that_are_held_for_the_server_cost_traffic(rows: list[ResultRow]) -> None:
    for mix, slots in atp.settings_of(rows):
        ours, held = (
            column(rows, "fallback_bytes", mix=mix, slots=slots, choice=choice)
            for choice in (atp.OURS, atp.HELD)
        )
        assert held > ours


def losses_cost_goodput_but_do_not_stop_a_job(rows: list[ResultRow]) -> None:
    for kind in loss.KINDS:
        for size_kb in (16, 64):
            assert loss.relative(rows, kind, 4, size_kb, 0.0).mean == 1.0
            left, bare = (
                loss.relative(rows, kind, 4, size_kb, 0.01, probes).mean for probes in ("on", "off")
            )
            assert bare < left < 1.0
    assert all(row["lost_packets"] for row in rows if row["loss"])


def policies_that_know_deadlines_miss_fewer(rows: list[ResultRow]) -> None:
    flows = selected(rows, part="memory")
    missed = {policy: column(flows, "missed", policy=policy) for policy in deadlines_runs.POLICIES}
    for fewer, more in zip(missed[deadlines_runs.DEADLINE], missed[deadlines_runs.STATIC], strict=True):
        assert fewer < more


def test_times_across_a_change_are_those_of_two_iterations() -> None:
    times = [1.0, 1.0, 1.0, 1.0, 3.0, 2.0, 9.0, 2.0, 2.0]
    assert deadlines_runs.by_size(times, [0, 4]) == {
        "across_0_s": 1.0,
        "steady_0_s": 1.0,
        "across_1_s": 2.5,
        "steady_1_s": 2.0,
    }


def the_best_of_each_together_is_faster_than_the_base(rows: list[ResultRow]) -> None:
    assert together.against_base(rows, together_runs.BEST) < -0.1
    assert together.against_base(rows, together_runs.BASE) == 0.0


def flows_come_close_to_packets(rows: list[ResultRow]) -> None:
    jobs = validation_runs.jobs_of(rows)
    assert len(jobs) == 1 + 4 * 4
    for model in validation_runs.MODELS:
        assert 0 < median(validation_runs.sizes(jobs, model)) < 0.1
        assert 0.8 <= validation_runs.correlations(jobs, model)["policies 2"] <= 1.0


PAGES = [
    (memory, shared_slots_serve_even_without_memory),
    (stragglers, a_straggler_keeps_slots_from_a_healthy_job),
    (loss, losses_cost_goodput_but_do_not_stop_a_job),
    (regions, a_job_does_not_notice_that_its_region_changes),
    (atp, slots_that_are_held_for_the_server_cost_traffic),
    (deadlines, policies_that_know_deadlines_miss_fewer),
    (together, the_best_of_each_together_is_faster_than_the_base),
    (cluster_validation, flows_come_close_to_packets),
]


@pytest.mark.parametrize(
    ("experiment", "holds"),
    [pytest.param(of.EXPERIMENT, holds, id=of.EXPERIMENT.name) for of, holds in effort.some(PAGES, every=4)],
)
def test_a_trial_makes_a_page_and_shows_what_the_page_is_about(
    experiment: Experiment, holds: Callable[[list[ResultRow]], None], tmp_path: Path
) -> None:
    rows = sweep(experiment, experiment.scenarios(True), quick=True)
    files = write(experiment, rows, tmp_path, command="python -m something")
    page = (tmp_path / f"{experiment.name}.md").read_text()
    assert page.startswith(f"# {experiment.title}\n")
    assert "nan" not in page
    plots = [file for file in files if file.suffix == ".svg"]
    assert bool(plots) == (importlib.util.find_spec("matplotlib") is not None)
    holds(rows)


OTHERS = ("windows", "pool", "dynamic", "traffic", "slowlink", "precision", "preemption")


@pytest.mark.parametrize("name", effort.some(OTHERS, every=4))
def test_a_trial_makes_every_other_page_that_runs_in_virtual_time(name: str, tmp_path: Path) -> None:
    experiment = load(name)
    rows = sweep(experiment, experiment.scenarios(True), quick=True)
    write(experiment, rows, tmp_path, command="python -m something")
    page = (tmp_path / f"{name}.md").read_text()
    assert page.startswith(f"# {experiment.title}\n")
    assert "nan" not in page


def test_every_page_is_tried() -> None:
    real = {name for name in QUESTIONS if any(run.real for run in load(name).scenarios(True))}
    by_command = {"which-policy", "mina"}  # test_which_policy.py, test_mina_page.py
    assert {*OTHERS, *real, *by_command, *(page.EXPERIMENT.name for page, _ in PAGES)} == {*QUESTIONS}
