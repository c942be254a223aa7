"""The service's clock, under steps of the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ina.service.clock import Clock
from ina.service.policies import Policies
from ina.service.store import Store
from tests.ina.service.test_policies import ledger_of


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


@pytest.mark.parametrize("stepped_s", [-7200.0, 7200.0])
@pytest.mark.parametrize(("boot", "passed_s"), [("same", 60.0), ("another", 60.0)])
def test_the_wall_clock_is_stepped_while_it_is_off_and_while_it_runs(
    stepped_s: float, boot: str, passed_s: float
) -> None:
    """Two hours forward during one restart made all deadlines late for good."""
    wall, since_boot = [1000.0], [500.0]
    first = Clock(1000.0, 0.0, wall=lambda: wall[0], monotonic=lambda: since_boot[0], boot="same")
    wall[0], since_boot[0] = wall[0] + 30.0, since_boot[0] + 30.0
    assert first.stepped_s() == 0.0
    if boot == "another":  # what it was stepped by before the machine was started again is known
        wall[0] += stepped_s
        assert first.stepped_s() == stepped_s
        assert first.began_at == 1000.0 + stepped_s
        since_boot[0] = 3.0 - passed_s
    else:
        wall[0] += stepped_s
    kept, last_s = first.kept(), 30.0
    wall[0], since_boot[0] = wall[0] + passed_s, since_boot[0] + passed_s
    again = Clock(
        first.began_at, last_s, kept, wall=lambda: wall[0], monotonic=lambda: since_boot[0], boot=boot
    )
    assert again.now_s() == pytest.approx(90.0)
    again.stepped_s()
    assert again.began_at == pytest.approx(1000.0 + stepped_s)


def test_how_the_clock_stands_is_written_down_once_and_when_it_was_stepped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(tmp_path) as store:
        ledger = ledger_of(store, Policies("fifo"))
        wall = [0.0]
        ledger._clock = Clock(0.0, 0.0, wall=lambda: wall[0], monotonic=lambda: 0.0, boot="this")
        ledger.keep_time()
        assert store.fact("clock") == '{"boot": "this", "ahead_s": 0.0}'
        assert not caplog.text
        wall[0] = 7200.0
        ledger.keep_time()
        assert store.fact("began") == "7200.0"
        assert "stepped by +7200 s" in caplog.text
