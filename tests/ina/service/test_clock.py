"""The service's clock, under steps of the machine's."""

from __future__ import annotations

import pytest

from ina.service.clock import Clock


@pytest.mark.parametrize(
    ("wall_s", "begins_s"), [(1100.0, 100.0), (1_000_000.0, 999_000.0), (500.0, 90.0), (0.0, 90.0)]
)
def test_it_goes_on_after_a_restart_and_never_back(wall_s: float, begins_s: float) -> None:
    """It was started at 1000, and its last event was at 90; then the wall clock says this."""
    now = [5.0]
    clock = Clock(1000.0, 90.0, wall=lambda: wall_s, monotonic=lambda: now[0])
    assert clock.now_s() == begins_s
    now[0] += 3.0
    assert clock.now_s() == begins_s + 3.0
