from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib.core.congestion import (
    CONGESTION,
    CONGESTION_NAMES,
    A2tp,
    Aimd,
    Congestion,
    CongestionName,
    FixedWindow,
    Limits,
    Round,
)


def a_round(results: int, *, marked: int = 0, collided: int = 0, waiting: float = 0.0) -> Round:
    return Round(results, marked, collided, waiting)


def shares() -> st.SearchStrategy[tuple[float, float, float]]:
    """What each round brings, as shares of its results."""
    share = st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1))
    return st.tuples(share, share, share)


def replay(control: Congestion, window: int, events: list[tuple[float, float, float]]) -> list[Limits]:
    limits = [control.start(window)]
    for *of_results, waiting in events:
        results = limits[-1].in_flight
        marked, collided = (round(results * share) for share in of_results)
        limits.append(control.on_round(a_round(results, marked=marked, collided=collided, waiting=waiting)))
    return limits


@given(
    st.sampled_from(CONGESTION_NAMES),
    st.integers(1, 1000),
    st.lists(shares(), max_size=60),
)
def test_limits_stay_between_one_and_the_window(
    name: CongestionName, window: int, events: list[tuple[float, float, float]]
) -> None:
    for limits in replay(CONGESTION[name](), window, events):
        assert 1 <= limits.in_flight <= window
        assert 1 <= limits.claims <= window


@given(
    st.sampled_from(CONGESTION_NAMES),
    st.integers(1, 500),
    st.lists(shares(), max_size=30),
    st.integers(1, 99),
)
def test_a_better_round_never_brings_a_smaller_window(
    name: CongestionName, window: int, events: list[tuple[float, float, float]], share: int
) -> None:
    good, bad = CONGESTION[name](), CONGESTION[name]()
    results = replay(good, window, events)[-1].in_flight
    replay(bad, window, events)
    hit = max(1, results * share // 100)
    assert good.on_round(a_round(results)).in_flight >= bad.on_round(a_round(results, marked=hit)).in_flight


@given(st.sampled_from(CONGESTION_NAMES), st.integers(1, 500), st.lists(shares(), max_size=30))
def test_without_congestion_everything_is_allowed_in_the_end(
    name: CongestionName, window: int, events: list[tuple[float, float, float]]
) -> None:
    control = CONGESTION[name]()
    replay(control, window, events)
    limits = [control.on_round(a_round(100)) for _ in range(window + 40)]
    assert limits[-1] == Limits(window, window)


def test_every_name_has_a_constructor() -> None:
    assert set(CONGESTION) == set(CONGESTION_NAMES)
    assert not CONGESTION["fixed"]().wants_rounds
    assert CONGESTION["aimd"]().wants_rounds
    assert CONGESTION["a2tp"]().wants_rounds


def test_the_fixed_window_never_moves() -> None:
    assert replay(FixedWindow(), 512, [(1.0, 1.0, 1.0), (0.0, 0.0, 0.0)]) == [Limits(512, 512)] * 3


class TestAimd:
    def test_slow_start_takes_an_mtu_for_each_result_up_to_the_threshold(self) -> None:
        control = Aimd(initial_packets=2, step_packets=5, threshold=100)
        assert control.start(1000) == Limits(2, 1000)
        assert control.on_round(a_round(2)).in_flight == 12
        assert control.on_round(a_round(12)).in_flight == 72
        assert control.on_round(a_round(72)).in_flight == 100
        assert control.on_round(a_round(100)).in_flight == 105
        assert control.on_round(a_round(105)).in_flight == 110

    def test_a_mark_halves_and_ends_slow_start(self) -> None:
        control = Aimd()
        assert control.start(1000).in_flight == 200
        assert control.on_round(a_round(200, marked=1)).in_flight == 100
        assert control.threshold == 100
        assert control.on_round(a_round(200, marked=1)).in_flight == 100, "sent before the cut"
        assert control.on_round(a_round(100)).in_flight == 105

    def test_two_flows_that_see_the_same_marks_become_fair(self) -> None:
        """Chiu and Jain: the difference halves with each mark, the sum oscillates at the capacity."""
        one, other = Aimd(initial_packets=190, threshold=1), Aimd(initial_packets=10, threshold=1)
        first, second = one.start(1000).in_flight, other.start(1000).in_flight
        for _ in range(200):
            marked = int(first + second > 200)
            first = one.on_round(a_round(first, marked=marked)).in_flight
            second = other.on_round(a_round(second, marked=marked)).in_flight
        assert abs(first - second) <= 2
        assert 95 <= first + second <= 210


class TestA2tp:
    def test_it_starts_with_everything_and_believes_in_no_straggler(self) -> None:
        control = A2tp()
        assert control.start(50) == Limits(50, 50)
        assert (control.alpha, control.beta, control.gamma) == (0, 0, 1)

    def test_the_averages_follow_the_published_gains(self) -> None:
        control = A2tp()
        control.start(64)
        control.on_round(a_round(64, marked=32, collided=16, waiting=0.25))
        assert control.alpha == pytest.approx(1 / 8 * 0.5)
        assert control.beta == pytest.approx(1 / 8 * 0.25)
        assert control.gamma == pytest.approx(63 / 64 + 1 / 64 * 0.75)

    def test_marks_cut_the_window_by_half_of_their_average_share(self) -> None:
        control = A2tp(alpha=0.5)
        control.start(100)
        control.on_round(a_round(100, marked=50))
        assert control.on_round(a_round(100, marked=100)).in_flight == 75, "sent before the cut"
        assert control.on_round(a_round(75)).in_flight == 76

    def test_marks_on_everything_halve_in_the_long_run(self) -> None:
        control = A2tp(alpha=1.0)
        control.start(64)
        rounds = [control.on_round(a_round(1, marked=1)).in_flight for _ in range(14)]
        assert rounds == [32, 32, 16, 16, 8, 8, 4, 4, 2, 2, 1, 1, 1, 1]

    def test_a_few_collisions_are_tolerated(self) -> None:
        control = A2tp(initial_packets=50)
        control.start(100)
        for _ in range(100):
            control.on_round(a_round(100, collided=9))
        assert control.aggregator_window == 100
        assert control.beta == pytest.approx(0.09, abs=1e-5)

    def test_a_job_without_straggler_gives_slots_up_in_proportion(self) -> None:
        """1 - (beta - 0.1)^1 / 1.9 with beta = 0.55."""
        control = A2tp(beta=0.55)
        control.start(1000)
        control.on_round(a_round(1000, collided=550))
        assert control.aggregator_window == int(1000 * (1 - 0.45 / 1.9))

    def test_a_job_with_a_straggler_gives_up_half_at_once(self) -> None:
        """(beta - 0.1)^0 / 1.9 = 0.526, whatever the contention beyond the tolerance."""
        for beta in (0.11, 0.5, 1.0):
            control = A2tp(beta=beta, gamma=0.0)
            control.start(1000)
            control.on_round(a_round(1000, collided=round(1000 * beta), waiting=1.0))
            assert control.aggregator_window == int(1000 * (1 - 1 / 1.9)) == 473

    @given(st.floats(0.11, 1), st.floats(0, 1), st.floats(0, 1))
    def test_the_slower_its_slowest_rank_the_more_a_job_gives_up(
        self, beta: float, gamma: float, other: float
    ) -> None:
        windows = []
        for degree in sorted((gamma, other)):
            control = A2tp(beta=beta, gamma=degree)
            control.start(1000)
            control.on_round(a_round(1000, collided=round(1000 * beta), waiting=1 - degree))
            windows.append(control.aggregator_window)
        assert windows[0] <= windows[1]

    def test_the_straggling_degree_converges_to_the_share_that_came_promptly(self) -> None:
        control = A2tp()
        control.start(100)
        for _ in range(1000):
            control.on_round(a_round(100, waiting=0.7))
        assert control.gamma == pytest.approx(0.3, abs=1e-5)

    def test_claims_are_the_same_share_of_the_core_window_as_of_what_is_in_flight(self) -> None:
        control = A2tp(alpha=1.0)
        control.start(512)
        limits = control.on_round(a_round(512, marked=512))
        assert limits == Limits(256, 512)
        control.beta = 1.0
        control.gamma = 0.0
        limits = control.on_round(a_round(256, collided=256, waiting=1.0))
        assert control.aggregator_window == 121
        assert limits == Limits(256, 512 * 121 // 256)

    def test_an_aggregator_window_stays_until_results_show_its_cut(self) -> None:
        control = A2tp(beta=1.0, gamma=0.0)
        control.start(1000)
        collided = a_round(1000, collided=1000, waiting=1.0)
        windows = []
        for _ in range(6):
            control.on_round(collided)
            windows.append(control.aggregator_window)
        assert windows == [473, 473, 473, 473, 224, 224]

    def test_an_empty_round_changes_nothing(self) -> None:
        control = A2tp()
        limits = control.start(40)
        assert control.on_round(a_round(0)) == limits
