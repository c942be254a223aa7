"""Trials of pages show what the pages are about."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from benchmarks.pages import (
    QUESTIONS,
    atp,
    cluster_validation,
    load,
    loss,
    memory,
    preemption,
    stragglers,
    trees,
    which_policy,
)
from bmv2_topos.harness import ResultRow, column, grouped, number, selected, sweep, write
from bmv2_topos.harness.page import BEGIN, END, rows_of
from tests import effort

Rows = list[ResultRow]


def test_a_page_keeps_its_sentences_and_gets_new_tables(tmp_path: Path) -> None:
    rows: Rows = [
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
    assert files == [tmp_path / "memory.json", page]


def shared_slots_serve_even_without_memory(rows: Rows) -> None:
    assert column(rows, "aggregated_share", slots=0) == [0.0] * 4
    for (jobs, program), _ in grouped([row for row in rows if row["slots"] == 0], "jobs", "program").items():
        (none,), (some,), (ample,) = memory.speeds(rows, jobs, program).values()
        assert 0 < none < some <= ample * 1.01


def a_straggler_keeps_slots_from_a_healthy_job(rows: Rows) -> None:
    found = grouped(selected(rows, jobs="healthy+straggling"), "slow", "slots", "control", "factor")
    assert {control for _, _, control, _ in found} == {"fixed", "aimd", "a2tp"}
    for (slow, slots, control, factor), (row,) in found.items():
        (healthy,) = stragglers.cost(rows, slow, slots, control, factor, "healthy")
        assert (healthy > 1.02) == (factor > 1)
        assert (number(row, "healthy_share") < 1) == (factor > 1)


def slots_that_are_held_for_the_server_cost_traffic(rows: Rows) -> None:
    mixes = [row for row in rows if row["mix"] != atp.ALONE]
    for of in grouped(mixes, "mix", "slots").values():
        ours, held = (column(of, "fallback_bytes", choice=choice) for choice in (atp.OURS, atp.HELD))
        assert held > ours


def losses_cost_goodput_but_do_not_stop_a_job(rows: Rows) -> None:
    for of in grouped([row for row in rows if row["size_kb"]], "kind", "size_kb").values():
        with_, bare = (selected(of, probes=probes) for probes in (loss.ON, loss.OFF))
        assert loss.relative(with_, 0.0) == [1.0]
        assert loss.relative(bare, 0.01) < loss.relative(with_, 0.01) < [1.0]
    assert all(row["lost_packets"] for row in rows if row["loss"])


def jobs_gain_by_preemption_and_the_lowest_priority_goes_on(rows: Rows) -> None:
    of = [row for row in rows if row["mix"] == preemption.FAVOURABLE]
    assert preemption.gains(of)[0] > 1.05
    lowest = [row for row in rows if row["mix"] == preemption.STARVATION]
    preempt_s, without_s = (
        preemption.mean(lowest, policy, "jct_1_s") for policy in (preemption.PREEMPT, preemption.WITHOUT)
    )
    assert preempt_s < without_s


def policies_that_know_deadlines_miss_fewer(rows: Rows) -> None:
    for of in grouped(selected(rows, part="memory"), "memory").values():
        assert sum(column(of, "missed", policy="deadline")) < sum(column(of, "missed", policy="static"))


def places_and_trees_that_are_chosen_are_faster(rows: Rows) -> None:
    netpack, spread = (
        column(rows, "jct_s", part=trees.PLACEMENT, placement=name) for name in trees.PLACED[:2]
    )
    assert netpack < spread
    assert trees.gain(selected(rows, part=trees.ROUTING), trees.ECMP) > 0


def flows_come_close_to_packets(rows: Rows) -> None:
    assert len(cluster_validation.times(rows, "packets")) == 1 + 4 * 4
    sets = [row for row in rows if row["case"] == "policies 2"]
    assert 0 < median(map(abs, cluster_validation.errors(rows))) < 0.1
    assert 0.8 <= cluster_validation.correlation(sets) <= 1.0


def mina_is_as_published(rows: Rows) -> None:
    (replayed,) = rows
    assert abs(number(replayed, "efficiency") - number(replayed, "published")) < 5e-5


def every_stack_has_a_figure(rows: Rows) -> None:
    (whole,), (doubted,) = (selected(rows, part=part) for part in (which_policy.ALL, which_policy.DOUBT))
    for row, stacks in ((whole, which_policy.STACKS), (doubted, which_policy.DOUBTING)):
        for names in stacks:
            assert 0 <= number(row, f"{which_policy.label(names)}.missed") <= number(row, "deadlines")
            assert number(row, f"{which_policy.label(names)}.others_s") > 0


def nothing_more(rows: Rows) -> None:
    """Any page: its rows make its tables."""


SHOWS: dict[str, Callable[[Rows], None]] = {
    "memory": shared_slots_serve_even_without_memory,
    "stragglers": a_straggler_keeps_slots_from_a_healthy_job,
    "loss": losses_cost_goodput_but_do_not_stop_a_job,
    "preemption": jobs_gain_by_preemption_and_the_lowest_priority_goes_on,
    "atp": slots_that_are_held_for_the_server_cost_traffic,
    "deadlines": policies_that_know_deadlines_miss_fewer,
    "trees": places_and_trees_that_are_chosen_are_faster,
    "mina": mina_is_as_published,
    "cluster-validation": flows_come_close_to_packets,
    "which-policy": every_stack_has_a_figure,
    **dict.fromkeys(("traffic", "precision"), nothing_more),
}


@pytest.mark.parametrize("name", effort.some(list(SHOWS), every=4))
def test_a_trial_makes_a_page_and_shows_what_the_page_is_about(name: str, tmp_path: Path) -> None:
    experiment = load(name)
    rows = sweep(experiment, experiment.scenarios(True), quick=True)
    write(experiment, rows, tmp_path, command="python -m something")
    page = (tmp_path / f"{name}.md").read_text()
    assert page.startswith(f"# {experiment.title}\n")
    assert experiment.tables(rows) in page
    assert "nan" not in page
    SHOWS[name](rows)


def test_every_page_is_tried() -> None:
    real = {name for name in QUESTIONS if any(run.real for run in load(name).scenarios(True))}
    assert {*SHOWS, *real} == {*QUESTIONS}


@pytest.mark.parametrize("name", SHOWS)
def test_labels_of_a_page_tell_its_runs_apart(name: str) -> None:
    labels = [tuple(run.labels.items()) for run in load(name).scenarios(False)]
    assert len({*labels}) == len(labels)
