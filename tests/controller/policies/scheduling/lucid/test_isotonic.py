import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling.lucid.isotonic import pool_adjacent_violators
from controller.policies.scheduling.lucid.usage import BadSample

values = st.lists(st.floats(-100, 100), min_size=1, max_size=12)


@settings(deadline=None)
@given(values, st.booleans())
def test_the_result_is_monotone_and_keeps_the_mean(numbers: list[float], increasing: bool) -> None:
    found = pool_adjacent_violators(numbers, increasing=increasing)
    assert all((a <= b + 1e-9) if increasing else (a >= b - 1e-9) for a, b in pairwise(found))
    assert math.fsum(found) == pytest.approx(math.fsum(numbers), abs=1e-6)


@settings(deadline=None)
@given(values)
def test_monotone_values_stay(numbers: list[float]) -> None:
    assert pool_adjacent_violators(sorted(numbers)) == pytest.approx(sorted(numbers))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(0.1, 5)), min_size=1, max_size=10))
def test_it_agrees_with_scikit_learn(pairs: list[tuple[float, float]]) -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    numbers, weights = [p[0] for p in pairs], [p[1] for p in pairs]
    expected = isotonic.isotonic_regression(numbers, sample_weight=weights)
    assert pool_adjacent_violators(numbers, weights) == pytest.approx(list(expected), abs=1e-6)


def test_what_nothing_is_known_of_takes_its_neighbours_value() -> None:
    assert pool_adjacent_violators([1, 99, 3], [1, 0, 1])[0] == 1
    found = pool_adjacent_violators([1, 99, 3], [1, 0, 1])
    assert found == sorted(found)
    assert max(found) <= 3


def test_bad_input_is_refused() -> None:
    with pytest.raises(BadSample, match="2 values with 1 weights"):
        pool_adjacent_violators([1, 2], [1])
    with pytest.raises(BadSample, match="all finite"):
        pool_adjacent_violators([1, math.nan])
    with pytest.raises(BadSample, match="a weight is negative"):
        pool_adjacent_violators([1], [-1])
