"""Tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bmv2_topos.harness import (
    BadExperiment,
    Experiment,
    ResultRow,
    RunFailed,
    Scenario,
    compare,
    grouped,
    load,
    markdown,
    spread,
    sweep,
    with_seeds,
)
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, float32_bytes

JOB = Job(name="a", workers=2, iterations=2, layers_bytes=float32_bytes((500,)), compute_s=1e-5, window=16)


def scenarios(count: int) -> list[Scenario]:
    return [
        Scenario(labels={"seed": seed}, jobs=(JOB,), settings=VirtualSettings(lanes=32, slots=64, seed=seed))
        for seed in range(count)
    ]


OWN = """
from bmv2_topos.harness import Experiment, Scenario
from bmv2_topos.testbeds.virtual import VirtualSettings
from controller.vocabulary import Job, float32_bytes

JOB = Job(name="a", workers=2, iterations=2, layers_bytes=float32_bytes((500,)), compute_s=1e-5, window=16)


def scenarios(count):
    settings = [VirtualSettings(lanes=32, slots=64, seed=seed) for seed in range(count)]
    return [Scenario(labels={"seed": one.seed}, jobs=(JOB,), settings=one) for one in settings]


EXPERIMENT = Experiment(
    title="Own",
    about="",
    scenarios=lambda quick: scenarios(1 if quick else 3),
    measure=lambda report: {"iteration_s": report.jobs[0].mean_iteration_s},
    tables=lambda rows: "",
)
"""


@pytest.fixture
def own(tmp_path: Path) -> Experiment:
    (tmp_path / "own.py").write_text(OWN)
    return load(str(tmp_path / "own.py"))


def test_rows_come_in_order_whatever_the_number_of_processes(own: Experiment) -> None:
    done: list[int] = []
    alone = sweep(own, own.scenarios(False), progress=lambda at, total: done.append(at))
    assert [row["seed"] for row in alone] == [0, 1, 2]
    assert done == [0, 1, 2, 3]
    assert sweep(own, own.scenarios(False)[1:], processes=2) == alone[1:]
    assert sweep(own, own.scenarios(True), quick=True, processes=2) == alone[:1]


def test_the_first_seeds_can_be_chosen_and_no_more_than_there_are() -> None:
    assert [scenario.labels["seed"] for scenario in with_seeds(scenarios(4), 2)] == [0, 1]
    with pytest.raises(ValueError, match="5 seeds cannot be run; want 1 to 4"):
        with_seeds(scenarios(4), 5)


def test_a_row_that_comes_out_otherwise_is_found(own: Experiment) -> None:
    rows = sweep(own, own.scenarios(False))
    assert compare(own, rows, count=3) == []
    rows[0] = {**rows[0], "iteration_s": 1.0}
    (difference,) = compare(own, rows, count=3)
    assert (difference.labels, difference.column, difference.published) == ({"seed": 0}, "iteration_s", 1.0)
    with pytest.raises(ValueError, match="2 rows are published, and the experiment has 3 runs"):
        compare(own, rows[:2], count=1)


@dataclass(frozen=True)
class RealRun:
    """A run of real processes, whose tools are not here."""

    labels: ResultRow
    real: bool = True
    missing: str = "no such switch here"
    elements: int = 1

    def run(self) -> Report:
        raise AssertionError("it is left out")


def test_a_page_that_lacks_rows_of_real_runs_is_not_stale(own: Experiment) -> None:
    """Their tools were not there when it was made, as BMv2 where the page of targets is made without."""
    rows = sweep(own, own.scenarios(False))
    more = replace(own, scenarios=lambda quick: [RealRun({"seed": 8}), *own.scenarios(quick)])
    assert compare(more, rows, count=3) == []
    assert compare(more, [{"seed": 8, "iteration_s": 1.0}, *rows], count=3) == []
    with pytest.raises(ValueError, match="4 rows are published, and the experiment has 4 runs"):
        compare(more, [{"seed": 9, "iteration_s": 1.0}, *rows], count=3)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_names_the_run_and_the_line(tmp_path: Path, processes: int) -> None:
    (tmp_path / "bad.py").write_text(OWN.replace("report.jobs[0].mean", "report.jobs[1].mean"))
    bad = load(str(tmp_path / "bad.py"))
    with pytest.raises(RunFailed, match=r"the run seed 0: IndexError: .* \(.*bad.py:18\)$"):
        sweep(bad, bad.scenarios(True), quick=True, processes=processes)


def test_runs_with_the_same_labels_are_refused(own: Experiment) -> None:
    with pytest.raises(BadExperiment, match="two runs have the same labels: seed 0"):
        sweep(own, [*own.scenarios(True), *own.scenarios(True)])


def test_tables_are_markdown() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"


def test_a_spread_is_mean_least_and_most() -> None:
    assert spread([1.0, 2.0, 1.2]) == "1.40 (1.00..2.00)"
    assert spread([0.5, 0.5], ".0%") == "50%"


def test_rows_are_grouped_in_the_order_in_which_values_turn_up() -> None:
    rows: list[ResultRow] = [{"a": 2, "seed": 1}, {"a": 1, "seed": 1}, {"a": 2, "seed": 2}]
    assert list(grouped(rows, "a").items()) == [((2,), [rows[0], rows[2]]), ((1,), [rows[1]])]


ENDS = """
import os, sys
from bmv2_topos.harness import Experiment
from bmv2_topos.harness.model import Call, columns

def run(number):
    if number == 2:
        {end}
    return {{"m": number}}

def runs(quick):
    return [Call(labels={{"n": n}}, call=lambda n=n: run(n)) for n in (1, 2)]

EXPERIMENT = Experiment(title="t", about="", scenarios=runs, measure=columns, tables=lambda rows: "")
"""


@pytest.mark.parametrize(
    ("end", "processes", "said"),
    [
        ("sys.exit(3)", 1, r"the run n 2: SystemExit: 3 \(.*ends\.py:8\)"),
        ("sys.exit(3)", 2, r"the run n 2: SystemExit: 3 \(.*ends\.py:8\)"),
        ("os._exit(3)", 2, r"the run n 2: SystemExit: os\._exit\(3\)"),
        ("os.kill(os.getpid(), 9)", 2, "a process ended during the run n [12] or one after it"),
    ],
)
def test_a_run_that_ends_its_process_has_failed(tmp_path: Path, end: str, processes: int, said: str) -> None:
    path = tmp_path / "ends.py"
    path.write_text(ENDS.format(end=end))
    one = load(str(path))
    with pytest.raises(RunFailed, match=said):
        sweep(one, one.scenarios(False), processes=processes)
