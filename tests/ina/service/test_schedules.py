"""The daemon under random mishaps in virtual time (`schedules`), a small share of what its command plays."""

from __future__ import annotations

import pytest

from ina.service.store import Store
from tests import effort
from tests.ina.service import mishaps
from tests.ina.service.mishaps import Wrong
from tests.ina.service.schedule import play


@pytest.mark.parametrize("seed", range(effort.cases(6)))
def test_nothing_is_left_and_no_job_is_lost_or_done_twice(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", range(7000, 7000 + effort.cases(6)))
def test_groups_that_take_turns_outlast_mishaps_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stages_s = ((), (0.03, 0.01, 0.01, 0.01), (0.01, 0.03, 0.01, 0.01), (0.01, 0.01, 0.03, 0.01))
    monkeypatch.setattr(mishaps, "STAGES_S", stages_s)
    monkeypatch.setattr(mishaps, "SCHEDULERS", ("muri-s", "muri-l", "weave-s", "weave-l", "gandiva"))
    play(seed)


@pytest.mark.parametrize(
    "seed",
    [
        2,  # a start that had failed, of a job that was over by then, kept the loop from ever resting
        1002,  # a job got other GPUs while its start took long: it ran twice at once
    ],
)
def test_schedules_that_found_a_mistake(seed: int) -> None:
    play(seed)


def test_a_schedule_notices_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "let_go", lambda store, run: None)
    with pytest.raises(Wrong, match="left in the store"):
        play(0)
