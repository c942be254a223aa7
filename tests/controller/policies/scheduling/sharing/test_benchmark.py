"""The benchmark runs, and says what is wrong with its arguments."""

import json
import sys

import pytest

from benchmarks.schedulers.sharing import ALL, main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.schedulers.sharing", *arguments])
    main()


def test_the_scheduler_is_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    few = ("--seeds", "1", "--jobs", "100", "--load", "3", "--samples", "40")
    run(monkeypatch, "schedule", *few, "--only", "fifo,sharing", "--json")
    fifo, ours = json.loads(capsys.readouterr().out)
    assert fifo["policy"] == "fifo"
    assert ours["times ours"] == 1
    assert 0 < fifo["work"] < ours["work"]


def test_every_ablation_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    few = ("--seeds", "1", "--jobs", "30", "--load", "3", "--samples", "40")
    run(monkeypatch, "schedule", *few, "--only", ",".join(ALL), "--json")
    assert [row["policy"] for row in json.loads(capsys.readouterr().out)] == list(ALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("schedule", "--only", "best", "--seeds", "1", "--samples", "9"),
            "policy 'best' is unknown; known are fifo, ",
        ),
        (
            ("models", "--references", "99", "--seeds", "1"),
            "reference jobs of 20 kinds; 1 to 20 are possible",
        ),
        (("models", "--samples", "0"), "0 samples of 20 kinds"),
        (("models", "--lucid", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_bad_arguments_are_named(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr("benchmarks.schedulers.sharing.MODEL_COUNTS", ())
    with pytest.raises(SystemExit, match=message):
        run(monkeypatch, *arguments)
