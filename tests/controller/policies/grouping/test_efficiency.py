from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.grouping.rounds import (
    Profile,
    best,
    efficiency,
    orders,
    round_s,
    union_rounds,
    worst,
)
from controller.policies.scheduling.errors import BadSpec

times = st.floats(0.001, 100)


@st.composite
def groups(draw: st.DrawFn) -> list[Profile]:
    k = draw(st.integers(1, 5))
    p = draw(st.integers(1, k))
    return [tuple(draw(times) for _ in range(k)) for _ in range(p)]


@pytest.mark.parametrize(
    ("jobs", "efficiency", "shortest_s", "longest_s"),
    [
        pytest.param([(2.0, 1.0), (1.0, 2.0)], 1, 3, 3, id="jobs A and B of the paper's figure 4"),
        pytest.param([(2.0, 1.0), (2.0, 1.0)], 0.75, 4, 4, id="jobs A and C of the paper's figure 4"),
        # two units of CPU, of GPU respectively, one of all else
        pytest.param([(1.0, 2.0, 1.0, 1.0), (1.0, 1.0, 2.0, 1.0)], 0.5, 5, 6, id="the paper's figure 6"),
        # in no order do all four compute at different times: of 0..3 no permutation has such differences
        pytest.param([*map(tuple, np.eye(4))], 1, 1, 3, id="four complementary jobs"),
        pytest.param([(3.0, 5.0), (2.0, 7.0)], 17 / 24, 12, 12, id="equation 1: max(3, 7) + max(5, 2)"),
    ],
)
def test_a_round_is_as_long_and_as_well_used_as_the_paper_says(
    jobs: list[Profile], efficiency: float, shortest_s: float, longest_s: float
) -> None:
    found = best(jobs)
    assert (found.efficiency, found.round_s) == (pytest.approx(efficiency), shortest_s)
    assert worst(jobs).round_s == longest_s


@given(groups())
def test_gamma_is_in_the_unit_interval_and_the_best_order_is_best(jobs: list[Profile]) -> None:
    k = len(jobs[0])
    found = best(jobs)
    assert 0 < found.efficiency <= 1
    assert found.efficiency == pytest.approx(efficiency(jobs, found.round_s))
    # every order, also those that `orders` leaves out because only differences matter
    for offsets in itertools.permutations(range(k), len(jobs)):
        length_s = round_s(jobs, offsets)
        assert found.round_s <= length_s * (1 + 1e-12)
        assert worst(jobs).round_s >= length_s * (1 - 1e-12)


@given(groups())
def test_a_round_is_at_least_the_longest_job_and_the_busiest_resource(jobs: list[Profile]) -> None:
    length_s = best(jobs).round_s
    assert length_s >= max(map(sum, jobs)) * (1 - 1e-12)
    assert length_s >= max(map(sum, zip(*jobs, strict=True))) * (1 - 1e-12)


def test_equal_profiles_tie_and_the_first_order_is_taken() -> None:
    assert best([(1.0, 1.0, 1.0)] * 3).offsets == (0, 1, 2)
    assert best([(1.0, 1.0, 1.0)] * 3).efficiency == 1


@given(st.integers(2, 4), st.data())
def test_unions_are_as_long_as_their_best_order(k: int, data: st.DataObject) -> None:
    p = data.draw(st.integers(1, k - 1))
    q = data.draw(st.integers(1, k - p))
    draw = st.lists(st.lists(times, min_size=k, max_size=k), min_size=1, max_size=3)
    left = [data.draw(st.lists(st.tuples(*[times] * k), min_size=p, max_size=p)) for _ in data.draw(draw)]
    right = [data.draw(st.lists(st.tuples(*[times] * k), min_size=q, max_size=q)) for _ in range(2)]
    for longest, reference in ((False, best), (True, worst)):
        found = union_rounds(np.array(left), np.array(right), longest=longest)
        expected = [[reference([*a, *b]).round_s for b in right] for a in left]
        assert found == pytest.approx(np.array(expected))


def test_orders_are_as_many_as_the_paper_says() -> None:
    assert [len(orders(4, p)) for p in (1, 2, 3, 4)] == [1, 3, 6, 6]


@pytest.mark.parametrize(
    ("jobs", "complaint"),
    [
        ([], "at least one job"),
        ([(1.0, 1.0)] * 3, "3 jobs share 2 resources"),
        ([(1.0, 1.0), (1.0,)], "different numbers of stages"),
        ([(1.0, -1.0)], "must not be negative"),
        ([(0.0, 0.0)], "nor all zero"),
        ([(float("nan"), 1.0)], "must not be negative"),
    ],
)
def test_impossible_groups_are_refused(jobs: list[Profile], complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        best(jobs)


def test_offsets_must_differ() -> None:
    with pytest.raises(BadSpec, match="want a different one for each"):
        round_s([(1.0, 1.0), (1.0, 1.0)], [1, 1])
