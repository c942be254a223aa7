"""The daemon under random mishaps in virtual time (`schedules`), a small share of what its command plays."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import soak as page
from ina.service.store import Store
from tests import effort
from tests.ina.service import mishaps, schedules
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
        56,  # a run whose admission had failed never ended if something of its number had been started before
        92,  # a policy never heard that jobs were over which were forgotten at once, and chose one of them
        21897,  # a run started again before its old fallback server had heard that its job was gone
        66451,  # a job was over and forgotten before its submission was answered, which failed
        1002,  # a job got other GPUs while its start took long: it ran twice at once
    ],
)
def test_schedules_that_found_a_mistake(seed: int) -> None:
    play(seed)


def test_a_schedule_notices_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "let_go", lambda store, run: None)
    with pytest.raises(Wrong, match="left in the store"):
        play(0)


def test_a_page_says_what_happened_in_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = tmp_path / "run.json", tmp_path / "other.json"
    for path, seed in ((run, 1), (other, 2)):
        command = ["schedules", "--schedules", "1", "--seed", str(seed), "--json", str(path)]
        monkeypatch.setattr("sys.argv", command)
        assert schedules.main() == 0
    page.main([str(run), str(other), "--output", str(tmp_path)])
    text = (tmp_path / "service-schedules.md").read_text()
    assert "**2 schedules with " in text
    assert "none went wrong" in text
    assert "| submit |" in text
    with pytest.raises(SystemExit, match="have schedules in common"):
        page.main([str(run), str(run), "--output", str(tmp_path)])
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(SystemExit, match="want the output of"):
        page.main([str(tmp_path / "no.json"), "--output", str(tmp_path)])
