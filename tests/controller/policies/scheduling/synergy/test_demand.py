import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling.synergy.demand import BadDemand, Option, Sensitivity, ServerShape, demand
from tests.controller.policies.scheduling.synergy.cases import CACHING, HUNGRY, MODEST, SHAPE, job, matrices


def test_the_ideal_is_the_smallest_of_the_fastest() -> None:
    assert job("a", HUNGRY).ideal == Option(6, 25, 2.0)
    assert job("a", HUNGRY).floor == Option(3, 25, 1.0)
    assert job("b", MODEST).ideal == job("b", MODEST).floor == Option(1, 25, 1.0)
    assert job("c", CACHING).ideal == Option(3, 75, 4.0)
    assert job("c", CACHING).floor == Option(1, 25, 1.0)


def test_many_gpus_on_a_server_share_what_it_has() -> None:
    assert job("a", HUNGRY, gpus=2).ideal == Option(6, 25, 2.0)
    assert job("a", HUNGRY, gpus=3).ideal == Option(3, 25, 1.0)
    assert job("a", HUNGRY, gpus=5).ideal == Option(3, 25, 1.0)  # three on one of two servers
    assert job("c", CACHING, gpus=2).ideal == Option(3, 50, 2.0)


def test_a_job_on_two_servers_shares_each_with_half_of_itself() -> None:
    steps = Sensitivity.build([1, 4], [5], [[1], [2]])
    assert [job("s", steps, gpus=gpus).ideal.cpus for gpus in (3, 4, 5, 6, 8)] == [4, 1, 4, 4, 1]


def test_shares_with_less_of_anything_than_the_floor_are_no_options() -> None:
    trade = Sensitivity.build([2, 3], [25, 50], [[1, 2], [2, 2]])  # fewer CPUs do with more memory
    assert [(o.cpus, o.memory_gb) for o in job("t", trade).options] == [(3, 25)]


@settings(deadline=None)
@given(matrices(), st.integers(1, 9))
def test_falling_back_takes_nothing_and_keeps_the_fair_speed(matrix: Sensitivity, gpus: int) -> None:
    found = demand("j", gpus, matrix, SHAPE)
    assert found.floor.speed == 1.0
    assert found.floor.cpus <= SHAPE.fair_cpus
    assert found.floor.memory_gb <= SHAPE.fair_memory_gb
    assert found.floor in found.options
    assert found.ideal in found.options
    for option in found.options:
        assert option.cpus >= found.floor.cpus
        assert option.memory_gb >= found.floor.memory_gb
        assert 1.0 <= option.speed <= found.ideal.speed


@settings(deadline=None)
@given(matrices(), st.integers(1, 4))
def test_no_option_is_beaten_by_a_smaller_one(matrix: Sensitivity, gpus: int) -> None:
    options = demand("j", gpus, matrix, SHAPE).options
    for a in options:
        for b in options:
            smaller = b.cpus <= a.cpus and b.memory_gb <= a.memory_gb
            assert a is b or not (smaller and b.speed >= a.speed)


def test_a_job_that_its_share_cannot_run_is_refused() -> None:
    greedy_one = Sensitivity.build([4, 8], [25], [[1], [2]])
    with pytest.raises(BadDemand, match="job x does not run with its GPU's share of 3 CPUs and 25 GB"):
        job("x", greedy_one)
    with pytest.raises(BadDemand, match="job x has 0 GPUs"):
        job("x", HUNGRY, gpus=0)
    with pytest.raises(BadDemand, match="a server of 0 GPUs"):
        ServerShape(0, 1, 1)
