"""The benchmark runs, and says what is wrong with its arguments."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.schedulers.references import SYNERGY
from benchmarks.schedulers.reproduce import WORKLOADS, by_workload
from benchmarks.schedulers.synergy import CLASSES, main, philly_derived
from controller.policies.scheduling import BadSpec
from tests.extras import needs

pytestmark = needs("scipy")

Rows = list[dict[str, float]]


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> Rows:
    monkeypatch.setattr(sys, "argv", ["benchmarks.schedulers.synergy", *map(str, arguments), "--json"])
    main()
    rows: Rows = json.loads(capsys.readouterr().out)
    return rows


def test_allocators_are_set_beside_opt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(monkeypatch, capsys, "allocate", "--servers", 2, "--seeds", 2, "--sizes", "1,2")
    by_name = {row["allocator"]: row for row in rows}
    assert by_name["opt"]["of_opt"] == 1
    assert by_name["proportional"]["throughput"] == 16
    assert by_name["proportional"]["of_opt"] < by_name["tune"]["of_opt"] <= by_name["tune"]["of_bound"] * 1.3
    assert all(row["of_bound"] <= 1 + 1e-6 and row["worst_of_opt"] <= row["of_opt"] for row in rows)


def test_whole_traces_are_set_beside_opt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(monkeypatch, capsys, "end-to-end", "--servers", 1, "--jobs", 30)
    by_name = {row["allocator"]: row for row in rows}
    assert by_name["opt"]["average_over_opt"] == by_name["opt"]["makespan_over_opt"] == 0
    fair, tuned = by_name["proportional"], by_name["tune"]
    assert fair["average_h"] > tuned["average_h"]
    assert fair["average_h"] == pytest.approx(by_name["opt"]["average_h"] * (1 + fair["average_over_opt"]))


def test_replicas_run_on_made_up_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = "fifo+fair,fifo+tune,fifo+opt"
    rows = run(monkeypatch, capsys, "published", "--servers", 1, "--jobs", 30, "--policies", policies)
    fair, tuned, best = (row["average_s"] for row in rows)
    assert best < tuned < fair
    assert all(row["makespan_s"] % 300 == 0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("allocate", "--matrix", "none.csv"), "No such file or directory: 'none.csv'"),
        (("allocate", "--mix", "0,0,0"), "positive weights for some of the kinds image, text, sound"),
        (("published", "--jobs", "9", "--policies", "fifo+best"), "mode 'best'; there are fair, greedy"),
        (("published", "--replay", "none.log"), "none.log"),
    ],
)
def test_bad_arguments_are_named(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.schedulers.synergy", *arguments])
    with pytest.raises(SystemExit) as error:
        main()
    assert str(error.value).startswith("benchmarks.schedulers.synergy: ")
    assert message in str(error.value)


@pytest.mark.slow
@pytest.mark.skipif("INA_TRACES" not in os.environ, reason="INA_TRACES names no folder with synergy/...")
@pytest.mark.parametrize("workload", WORKLOADS[1:], ids=lambda workload: workload.name)
def test_figures_are_the_public_simulators_on_its_traces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], workload
) -> None:
    folder = Path(os.environ["INA_TRACES"])
    matrix = folder / "synergy" / "sensitivity_matrix.csv"
    policies = by_workload(SYNERGY)[workload]
    replay = workload.arguments(folder)
    for row in run(monkeypatch, capsys, "published", "--matrix", matrix, *replay, "--policies", policies):
        theirs = SYNERGY[workload.name, str(row["policy"])]
        # OPT has many optima; where jobs of c1000 arrive together, their order is the public simulator's heap
        exact = workload.name != "c1000" and "opt" not in str(row["policy"])
        assert row["average_s"] == pytest.approx(theirs.avg_jct_s, rel=1e-7 if exact else 1e-3)
        assert row["makespan_s"] == theirs.makespan_s
        assert row["p99_s"] == pytest.approx(theirs.p99_jct_s, abs=0.001)


TIMES = {model: 0.5 for models in CLASSES.values() for model in models}


def test_classes_follow_the_split_and_models_take_turns() -> None:
    specs = philly_derived(TIMES, jobs=1000, jobs_per_hour=9)
    counts = Counter(spec.model for spec in specs)
    per_class = {name: sum(counts[m] for m in models) for name, models in CLASSES.items()}
    assert per_class == {"image": 200, "language": 700, "speech": 100}
    for models in CLASSES.values():
        assert max(counts[m] for m in models) - min(counts[m] for m in models) <= 1


def test_arrivals_are_poisson_and_durations_have_two_parts() -> None:
    specs = philly_derived(TIMES, jobs=4000, jobs_per_hour=9, seed=1)
    gaps = [b.arrival_s - a.arrival_s for a, b in itertools.pairwise(specs)]
    assert sum(gaps) / len(gaps) == pytest.approx(400, rel=0.05)
    assert sum(gap > 400 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.03)
    minutes = [spec.duration_s / 60 for spec in specs]
    assert min(minutes) >= 31
    assert max(minutes) <= 10_000
    assert sum(m > 1000 for m in minutes) / len(minutes) == pytest.approx(0.2, abs=0.03)


def test_the_generator_is_asked_as_the_public_simulator_asks_it() -> None:
    first, second = philly_derived(TIMES, jobs=2, jobs_per_hour=9, seed=7)
    rng = random.Random(7)
    assert first.arrival_s == math.ceil(-math.log(1.0 - rng.random()) / 9 * 3600)
    rng.randint(0, 9)
    assert second.arrival_s - first.arrival_s == math.ceil(-math.log(1.0 - rng.random()) / 9 * 3600)
    assert (first.model, second.model) == ("alexnet", "gnmt")


def test_classes_can_be_others() -> None:
    classes = {"short": ("a",), "long": ("b", "c")}
    specs = philly_derived(
        dict.fromkeys("abc", 1.0), jobs=200, jobs_per_hour=9, split=(50, 50), classes=classes
    )
    assert Counter(spec.model for spec in specs) == {"a": 100, "b": 50, "c": 50}


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(BadSpec, match="0 jobs per hour"):
        philly_derived(TIMES, jobs=1, jobs_per_hour=0)
    with pytest.raises(BadSpec, match=r"a split of \(50, 50\)"):
        philly_derived(TIMES, jobs=1, jobs_per_hour=1, split=(50, 50))
