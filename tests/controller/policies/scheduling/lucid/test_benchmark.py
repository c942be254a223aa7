"""The benchmark runs by both rule sets, and says what is wrong with its arguments."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.schedulers.lucid import PAPER, REPLICA, main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.schedulers.lucid", *arguments])
    main()


@pytest.mark.parametrize(("arguments", "policies"), [((), PAPER), (("--replica",), REPLICA)])
def test_lucid_is_set_beside_baselines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    policies: tuple[str, ...],
) -> None:
    pytest.importorskip("sklearn")
    run(monkeypatch, "schedule", *arguments, "--json")
    rows = {row["policy"]: row for row in json.loads(capsys.readouterr().out)}
    assert tuple(rows) == policies
    assert rows["tiresias"]["tiresias takes"] == 1
    assert rows["srtf"]["average_s"] < rows["fifo"]["average_s"]


def test_bad_arguments_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="profiles and pairs need each other"):
        run(monkeypatch, "schedule", "--profiles", "nowhere.csv")
    with pytest.raises(SystemExit, match=r"cluster_full_log\.csv: cannot be read"):
        run(monkeypatch, "schedule", "--folder", "nowhere")
