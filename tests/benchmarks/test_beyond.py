"""GPU types, failures and deadlines: each policy beside itself without its parts."""

import json

import pytest

from benchmarks.schedulers.beyond import main as beyond


@pytest.mark.parametrize("page", ["types", "faults", "deadlines"])
def test_the_page_is_made(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["beyond", page, "--seeds", "1", "--jobs", "40", "--json"]
    monkeypatch.setattr("sys.argv", words)
    beyond()
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["times_ours"] == 1
    assert all(row["average_s"] > 0 for row in rows)
