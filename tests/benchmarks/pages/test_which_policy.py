"""The page that says which policies to use: its rule, its bound and its kinds of clusters."""

from __future__ import annotations

import pytest

from benchmarks.pages import which_policy
from benchmarks.pages.families import LATER, NAMES, ONE_SWITCH, SEEDS, workload
from benchmarks.pages.which_policy import DOUBTING, OURS, SIMPLE, SIMPLEST, STACKS, Names, label, to_use
from bmv2_topos.harness import ResultRow


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
    for names in STACKS:
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
