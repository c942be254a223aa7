from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib.core import priority
from hostlib.core.priority import HIGHEST, LOWEST, Urgency, priority_of

layers = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n)))
shares = st.floats(0, 1)
seconds = st.floats(0, 1e9)
S = 1_000_000_000


def test_the_examples_in_the_documentation_hold() -> None:
    assert doctest.testmod(priority).failed == 0


@given(st.none() | layers, st.none() | shares, st.none() | seconds)
def test_every_tensor_has_a_priority_of_eight_bits_above_zero(
    layer: tuple[int, int] | None, share: float | None, remaining: float | None
) -> None:
    found = priority_of(layer=layer, communication_share=share, remaining_s=remaining)
    assert LOWEST <= found <= HIGHEST


@given(st.none() | layers, st.none() | shares, st.none() | seconds, layers, shares, shares, seconds, seconds)
def test_each_factor_alone_moves_the_priority_its_way(
    layer: tuple[int, int] | None,
    share: float | None,
    remaining: float | None,
    one: tuple[int, int],
    share_a: float,
    share_b: float,
    remaining_a: float,
    remaining_b: float,
) -> None:
    position, number = one
    front = [
        priority_of(layer=(p, number), communication_share=share, remaining_s=remaining)
        for p in (0, position, number - 1)
    ]
    assert front == sorted(front, reverse=True)
    by_share = [
        priority_of(layer=layer, communication_share=s, remaining_s=remaining)
        for s in sorted((share_a, share_b))
    ]
    assert by_share == sorted(by_share)
    by_time = [
        priority_of(layer=layer, communication_share=share, remaining_s=s)
        for s in sorted((remaining_a, remaining_b))
    ]
    assert by_time == sorted(by_time, reverse=True)


@given(layers, shares, seconds)
def test_what_is_not_known_is_neither_the_best_nor_the_worst(
    layer: tuple[int, int], share: float, remaining: float
) -> None:
    unknown = priority_of(communication_share=share, remaining_s=remaining)
    assert priority_of(layer=(0, 1), communication_share=share, remaining_s=remaining) >= unknown
    assert priority_of(layer=(1999, 2000), communication_share=share, remaining_s=remaining) <= unknown
    unknown = priority_of(layer=layer, communication_share=share)
    assert priority_of(layer=layer, communication_share=share, remaining_s=0) >= unknown
    assert priority_of(layer=layer, communication_share=share, remaining_s=1e9) <= unknown


@given(st.floats(2**-6, 0.5), st.floats(0.1, 1e4))
def test_factors_multiply(share: float, remaining: float) -> None:
    """Twice the share and twice the time cancel out, up to rounding."""
    one = priority_of(layer=(3, 9), communication_share=share, remaining_s=remaining)
    other = priority_of(layer=(3, 9), communication_share=2 * share, remaining_s=2 * remaining)
    assert abs(one - other) <= 1


def test_the_ends_of_the_range() -> None:
    assert priority_of(layer=(0, 50), communication_share=1.0, remaining_s=0.0) == HIGHEST
    assert priority_of(layer=(1023, 1024), communication_share=0.0, remaining_s=1e8) == LOWEST
    assert priority_of() == 128


def test_one_step_is_a_small_part_of_an_octave() -> None:
    minute = priority_of(remaining_s=60)
    hour = priority_of(remaining_s=3600)
    assert minute - hour == pytest.approx(254 / 50 * math.log2(60), abs=1)


@pytest.mark.parametrize("layer", [(3, 3), (-1, 3), (0, 0)])
def test_a_layer_that_is_not_one_is_refused(layer: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"must be \(position, layers\)"):
        priority_of(layer=layer)


class TestUrgency:
    def test_it_knows_nothing_at_first(self) -> None:
        urgency = Urgency(5 * S)
        assert urgency.communication_share(5 * S) is None
        assert urgency.communication_share(6 * S) is None
        assert urgency.remaining_s() is None
        assert urgency.priority(None, 6 * S) == 128

    def test_without_progress_the_share_is_that_of_all_time(self) -> None:
        urgency = Urgency(0)
        urgency.collective(1 * S, 2 * S)
        assert urgency.communication_share(2 * S) == 0.5
        assert urgency.communication_share(4 * S) == 0.25

    def test_iterations_give_share_and_remaining_time(self) -> None:
        urgency = Urgency(0)
        urgency.collective(0, 7 * S)  # warming up
        urgency.progress(0, 10, 10 * S)
        assert urgency.remaining_s() is None
        urgency.collective(11 * S, 12 * S)
        urgency.progress(1, 10, 12 * S)
        assert urgency.remaining_s() == 18
        assert urgency.communication_share(100 * S) == 0.5
        urgency.progress(3, 10, 16 * S)
        assert urgency.remaining_s() == 14
        assert urgency.communication_share(100 * S) == 0.375
        urgency.progress(10, 10, 30 * S)
        assert urgency.remaining_s() == 0

    def test_a_job_that_begins_again_is_measured_again(self) -> None:
        urgency = Urgency(0)
        urgency.progress(0, 5, 0)
        urgency.progress(1, 5, S)
        assert urgency.remaining_s() == 4
        urgency.progress(0, 5, 2 * S)
        assert urgency.remaining_s() is None

    @given(
        st.integers(2, 50),
        st.integers(1, 10**12),
        st.floats(0, 1),
        st.lists(st.integers(0, 10**12), max_size=5),
    )
    def test_after_a_change_it_follows(
        self, total: int, iteration_ns: int, share: float, before: list[int]
    ) -> None:
        """Whatever iterations were like, steady ones show within some dozens."""
        urgency, now = Urgency(0), 0
        for done, took in enumerate(before):
            urgency.progress(done, 1000, now)
            now += took
        for done in range(len(before), 100):
            urgency.progress(done, 1000, now)
            urgency.collective(now, now + int(share * iteration_ns))
            now += iteration_ns
        urgency.progress(100, 1000, now)
        remaining, measured = urgency.remaining_s(), urgency.communication_share(now)
        assert remaining == pytest.approx(900 * iteration_ns / 1e9, rel=0.05, abs=1)
        assert measured == pytest.approx(int(share * iteration_ns) / iteration_ns, abs=0.01)

    @pytest.mark.parametrize(("done", "total"), [(-1, 3), (4, 3), (0, 0)])
    def test_progress_that_is_none_is_refused(self, done: int, total: int) -> None:
        with pytest.raises(ValueError, match="must be 0 <= done <= total"):
            Urgency(0).progress(done, total, 0)
