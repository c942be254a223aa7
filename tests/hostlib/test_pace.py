"""Time-outs follow the pace at which the results of a slow switch come."""

from __future__ import annotations

import pytest

from hostlib.core.pace import UNKNOWN, Hold, Pace
from hostlib.core.state import RtoLimits


def test_collectives_of_less_than_a_window_say_nothing() -> None:
    pace = Pace(32)
    assert pace.collective(32, 1.0) is None
    assert pace.collective(1, 0.0) is None


@pytest.mark.parametrize(("results_per_s", "margin_s"), [(2_000, 0.032), (10_000, 0.0064), (1e6, 0.005)])
def test_a_time_out_leaves_room_for_two_full_windows(results_per_s: float, margin_s: float) -> None:
    """At least what the scheduler may add anywhere, at most what the slowest switch needs."""
    limits = Pace(32).collective(321, 320 / results_per_s)
    assert limits is not None
    assert limits.margin_s == pytest.approx(margin_s)
    assert limits.probe_s == pytest.approx(max(margin_s / 2, 0.002), rel=0.3)
    assert (limits.max_s, limits.initial_s) == (UNKNOWN.max_s, UNKNOWN.initial_s)


def test_the_slowest_pace_is_no_slower_than_what_is_taken_for_unknown() -> None:
    assert Pace(32).collective(321, 60.0) == UNKNOWN
    assert UNKNOWN.margin_s > RtoLimits().margin_s


def test_one_slow_collective_moves_the_limits_by_a_quarter() -> None:
    pace = Pace(10)
    margins = [limits.margin_s for time_s in (0.1, 0.2, 0.1) if (limits := pace.collective(101, time_s))]
    assert margins == pytest.approx([0.02, 0.025, 0.02375])


def test_a_slot_is_held_for_as_long_as_a_window_of_results_takes() -> None:
    hold = Hold()
    hold.collective(32, 1.0, 32)
    assert hold.hold_s == 0.0, "no more than a window say little"
    hold.collective(101, 0.5, 20)
    assert hold.hold_s == pytest.approx(20 * 0.005)
    hold.collective(101, 0.1, 20)
    assert hold.hold_s == pytest.approx(0.08), "by a quarter"
