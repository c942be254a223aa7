""" """

from __future__ import annotations

import random

import numpy as np
import pytest
import rustworkx
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.decisions import losses_against_exact
from controller.policies.grouping import matching
from controller.policies.grouping.matching import match
from controller.policies.grouping.rounds import Profile, best, group, weights
from tests import effort
from tests.controller.policies.grouping.cases import exact, greedy, table_of, total, weigher


@settings(deadline=None, max_examples=effort.cases(60))
@given(st.integers(0, 14), st.integers(0, 10**6), st.sampled_from([0, 1, 3]))
def test_matchings_are_valid_and_of_maximum_weight(count: int, seed: int, distinct: int) -> None:
    table = table_of(count, seed, distinct)
    reference = exact(table)
    assert total(table, match(count, weigher(table))) == pytest.approx(reference)
    assert total(table, greedy(count, weigher(table))) <= reference + 1e-9


@settings(deadline=None, max_examples=effort.cases(200))
@given(st.integers(1, 50), st.integers(0, 10**6), st.sampled_from([1, 2, 3, 20, 10**8]), st.floats(0.2, 1))
def test_of_matchings_that_weigh_the_same_the_one_of_rustworkx_is_found(
    count: int, seed: int, most: int, dense: float
) -> None:
    rng = np.random.default_rng(seed)
    table = np.triu(rng.integers(0, most + 1, (count, count)) * (rng.random((count, count)) < dense), 1)
    table = (table + table.T).astype(np.float64)
    graph = rustworkx.PyGraph.from_adjacency_matrix(table)
    expected = {(min(u, v), max(u, v)) for u, v in rustworkx.max_weight_matching(graph, weight_fn=int)}
    found = match(count, weigher(table / matching.SCALE), exact=True)
    assert found == sorted(expected)


@pytest.mark.parametrize("worst_order", [False, True])
@pytest.mark.parametrize("members", [2, 3, 4])
def test_what_is_remembered_of_a_few_groups_is_what_they_weigh(members: int, worst_order: bool) -> None:
    rng = random.Random(members)
    stages = np.array([profile(rng) for _ in range(12)])
    nodes = [(0,), (1,), (2, 3), (4,), (5, 6), (7, 8, 9)]
    some = np.array([4, 0, 2, 5, 1])
    for at in (stages, stages[::-1]):  # other jobs under the same numbers
        weigh = weights(at, nodes, members, worst_order=worst_order)
        assert np.array_equal(weigh(some, some), weigh(some, some.copy()))


def test_blocks_cover_every_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "BLOCK", 40)
    rng = random.Random(1)
    jobs = [profile(rng) for _ in range(301)]
    groups = group(jobs)
    assert sorted(job for plan in groups for job in plan.jobs) == list(range(301))
    assert len(groups) == 76


def profile(rng: random.Random) -> Profile:
    return tuple(rng.random() for _ in range(4))


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_groups_cover_all_jobs_and_are_no_larger_than_asked(members: int) -> None:
    rng = random.Random(members)
    jobs = [profile(rng) for _ in range(30)]
    plans = group(jobs, members=members)
    assert sorted(job for plan in plans for job in plan.jobs) == list(range(30))
    assert max(len(plan.jobs) for plan in plans) == members
    for plan in plans:
        assert plan.interleaving == best([jobs[job] for job in plan.jobs])


def test_two_resources_are_grouped_as_in_figure_5() -> None:
    a, b, c, d = (2.0, 1.0), (1.0, 2.0), (2.0, 1.0), (1.0, 2.0)
    plans = group([a, c, b, d])
    assert [plan.interleaving.efficiency for plan in plans] == [1, 1]


def test_two_resources_are_grouped_optimally() -> None:
    rng = random.Random(5)
    jobs = [(rng.random(), rng.random()) for _ in range(40)]
    everyone = np.arange(40)
    table = weights(np.array(jobs), [(job,) for job in range(40)], 2)(everyone, everyone)
    np.fill_diagonal(table, 0)
    found = sum(plan.interleaving.efficiency for plan in group(jobs) if len(plan.jobs) == 2)
    assert found == pytest.approx(exact(table))


def test_a_worst_order_is_no_better() -> None:
    rng = random.Random(6)
    jobs = [profile(rng) for _ in range(40)]
    good = sum(plan.interleaving.round_s for plan in group(jobs))
    assert sum(plan.interleaving.round_s for plan in group(jobs, worst_order=True)) > good


def test_no_job_and_one_job() -> None:
    assert group([]) == []
    (only,) = group([(1.0, 2.0)])
    assert only.jobs == (0,)
    assert only.interleaving.efficiency == 0.5


def test_all_equal_profiles_are_grouped() -> None:
    plans = group([(1.0, 1.0, 1.0, 1.0)] * 16)
    assert [len(plan.jobs) for plan in plans] == [4] * 4
    assert all(plan.interleaving.efficiency == 1 for plan in plans)


FAMILIES = ("uniform", "heavy tails", "one resource", "thirty kinds", "a hundred kinds")


def jobs(family: str, count: int, seed: int = 0) -> list[tuple[float, ...]]:
    rng = np.random.default_rng(seed)
    match family:
        case "uniform":
            stages = rng.random((count, 4))
        case "heavy tails":
            stages = np.exp(1.5 * rng.standard_normal((count, 4)))
        case "one resource":  # all wait for the GPU, some longer than others
            stages = 0.1 * rng.random((count, 4))
            stages[:, 2] = rng.exponential(size=count)
        case _:
            kinds = 30 if family == "thirty kinds" else 100
            share = 1 / np.arange(1, kinds + 1)
            stages = rng.random((kinds, 4))[rng.choice(kinds, count, p=share / share.sum())]
    return [tuple(map(float, row)) for row in stages]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_blocks_lose_is_less_than_half_a_percent(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "BLOCK", 150)
    losses = losses_against_exact(jobs(family, 450))
    assert len(losses) == 2
    assert all(-1e-9 <= loss < 0.005 for loss in losses)
