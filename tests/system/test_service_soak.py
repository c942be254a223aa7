"""The soak of the service with real processes, as short as it can be, and what it calls grown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from benchmarks.service import soak
from benchmarks.service.mishaps import MOST_FILES, Size, grown
from tests import effort
from tests.system.clusters import needs_namespaces
from tests.system.command import family


@effort.if_thorough()
@needs_namespaces
def test_a_short_soak_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path / "testbeds"))
    arguments = ["--minutes", "1", "--output", str(tmp_path / "out"), "--folder", str(tmp_path / "run")]
    with family():
        assert soak.main(arguments) == 0
    rows = json.loads((tmp_path / "out" / "service-soak.json").read_text())["rows"]
    assert sum(row["times"] for row in rows if row["kind"] == "event") > 0
    assert "no findings" in (tmp_path / "out" / "service-soak.md").read_text()


def test_what_a_process_has_too_much_of_is_named() -> None:
    new = Size(20, 9, 100_000)
    assert list(grown("it", Size(20 + MOST_FILES, 30, 140_000), new)) == []
    assert list(grown("it", Size(40, 9, 200_000), new)) == [
        "it has 40 files open at rest, and 20 when it is new",
        "it holds 200000 KiB at rest, and 100000 KiB when it is new",
    ]
