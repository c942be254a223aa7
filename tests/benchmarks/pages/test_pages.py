"""The published pages of experiments, without running them: rows, tables and texts belong together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.pages import QUESTIONS, RESULTS, load, model, precision, real, scaling, source
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    compare,
    sweep,
    with_seeds,
)
from bmv2_topos.harness.page import BEGIN, END, rows_of
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, float32_bytes


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_page_in_the_repository_has_all_that_the_experiment_runs(name: str) -> None:
    experiment = load(name)
    document = json.loads((RESULTS / f"{name}.json").read_text())
    assert document["command"] == f"ina experiment {source(name)}"
    rows = rows_of(document)
    labels = [
        {key: row[key] for key in scenario.labels}
        for row, scenario in zip(rows, experiment.scenarios(False), strict=True)
    ]
    assert labels == [dict(scenario.labels) for scenario in experiment.scenarios(False)]
    page = (RESULTS / f"{name}.md").read_text()
    assert experiment.tables(rows).strip() in page.partition(BEGIN)[2].partition(END)[0]
    assert page.startswith(f"# {experiment.title}\n")
    assert f"ina experiment {source(name)}\n" in page


JOB = Job(
    name="a",
    workers=2,
    iterations=2,
    layers_bytes=float32_bytes((256,)),
    compute_s=1e-5,
    window=16,
    numbers="fixed",
)


def scenario(**changes: object) -> Scenario:
    settings = VirtualSettings(lanes=32, slots=64)
    return Scenario(labels={"seed": 1}, jobs=(JOB,), settings=settings, **changes)  # type: ignore[arg-type]


def iteration(report: Report) -> ResultRow:
    return {"iteration_s": report.jobs[0].mean_iteration_s, "timed_s": report.wall_s}


def test_what_the_machine_decides_is_not_compared() -> None:
    run = real.RealAllreduce(
        labels={"seed": 2}, workers=2, rate_bps=1e8, size_bytes=1024, iterations=1, beside=()
    )
    mixed = Experiment(
        name="mixed",
        title="",
        about="",
        scenarios=lambda quick: [run, scenario()],
        measure=iteration,
        tables=lambda rows: "",
        timed=frozenset({"timed_s"}),
    )
    rows = [{"seed": 2, "iteration_s": 1.0}, *sweep(mixed, [scenario()])]
    assert compare(mixed, rows, count=2) == []
    changed = [rows[0], {**rows[1], "iteration_s": 1.0}]
    assert [difference.column for difference in compare(mixed, changed, count=2)] == ["iteration_s"]


def test_seeds_of_a_page_without_any_are_refused() -> None:
    run = Scenario(labels={}, jobs=(JOB,), settings=VirtualSettings())
    with pytest.raises(ValueError, match="no run of the experiment has a seed"):
        with_seeds([run], 1)


def test_traffic_is_counted_by_links() -> None:
    one, two = scenario().run(), scenario(shape=(2, 1)).run()
    sent, answered, frame = (2 * 2 * 256 // 32,) * 2 + (70 + 4 * 32,)
    assert (one.host_bytes, one.trunk_bytes) == ((sent + answered) * frame, 0)
    assert two.trunk_bytes == two.host_bytes == one.host_bytes


def test_a_slow_link_slows_a_job() -> None:
    slow = scenario(rates={"h2": 1e8}).run()
    assert slow.jobs[0].mean_iteration_s > 3 * scenario().run().jobs[0].mean_iteration_s


def test_a_page_of_real_runs_says_what_was_not_run() -> None:
    for experiment in (scaling.EXPERIMENT, model.EXPERIMENT):
        rows = [{**run.labels, "time_s": 1.0} for run in experiment.scenarios(True) if not run.real]
        assert "not run" in experiment.tables(rows)


def test_a_page_shows_what_was_measured_where_nothing_was_simulated() -> None:
    row = {
        "rate_bps": 1e9,
        "workers": 4,
        "runner": scaling.NETNS,
        "wire_s": 1.0,
        "time_s": 2.0,
        "best_s": 1.25,
    }
    row |= {"gloo_s": 3.0, "processor_s": 0.5, "load": 1.0}
    *_, line = scaling.tables([row]).splitlines()
    shown = ["4", "2.000 s", "50.0%", "80.0%", "3.000 s", "**1.50**", "not run"]
    assert [cell.strip() for cell in line.split("|")[1:8]] == shown
    assert line.endswith("| not run |")


@pytest.mark.parametrize("way", [precision.EXPONENT, "20", "38", "block16", "block16 with feedback"])
def test_gradients_as_integers_average_within_their_bound(way: str) -> None:
    stack = np.random.default_rng(1).standard_normal((precision.USUAL, 10, 13)).astype(np.float32)
    sums = precision.Sums(way)
    apart = np.abs(sums.average("any", stack) - stack.mean(axis=0, dtype=np.float64))
    assert apart.max() < (1e-3 if "block" in way else 1e-5)
    assert sums.too_large == (1.0 if way == "38" else 0.0)


def test_what_rounding_leaves_out_is_added_to_the_next_gradient_with_feedback_alone() -> None:
    stack = np.random.default_rng(1).standard_normal((precision.USUAL, 64)).astype(np.float32)
    exact = stack.mean(axis=0, dtype=np.float64)
    left = {}
    for way in ("block4", "block4 with feedback"):
        sums = precision.Sums(way)
        total = np.sum([sums.average("any", stack) for _ in range(20)], axis=0)
        left[way] = np.abs(total / 20 - exact).max()
    assert left["block4 with feedback"] < left["block4"] / 4


def test_gradients_below_the_scale_are_counted_as_lost() -> None:
    stack = np.full((precision.USUAL, 64), 1e-3, np.float32)
    sums = precision.Sums("8")
    assert not sums.average("any", stack).any()
    assert sums.zeros == 1.0
