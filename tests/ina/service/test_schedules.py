"""The daemon under random mishaps in virtual time (`schedules`), a small share of what its command plays."""

from __future__ import annotations

import pytest

from ina.service.store import Store
from tests import effort
from tests.ina.service.schedules import Wrong, play


@pytest.mark.parametrize("seed", range(effort.cases(6)))
def test_nothing_is_left_and_no_job_is_lost_or_done_twice(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize(
    "seed",
    [
        102,  # a job that was placed while all fallback servers were down never got one
        515,  # a job that ended as the last link came back: its GPUs counted as gone for ever
        104,  # a run that nobody held, and that did not end, ended the daemon at its start
    ],
)
def test_schedules_that_found_a_mistake(seed: int) -> None:
    play(seed)


def test_a_schedule_notices_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "let_go", lambda store, run: None)
    with pytest.raises(Wrong, match="left in the store"):
        play(0)
