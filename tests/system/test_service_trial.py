"""The controller as a service beside a simulation of the same jobs, as short as it can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from benchmarks.service import compare
from tests.system.clusters import needs_namespaces
from tests.system.command import family


@pytest.fixture(autouse=True)
def _own_testbeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path / "testbeds"))


@needs_namespaces
def test_the_same_jobs_are_simulated_and_live(tmp_path: Path) -> None:
    with family():
        assert compare.main(["--quick", "--output", str(tmp_path)]) == 0
    page = (tmp_path / "service-simulated.md").read_text()
    rows = [
        line.strip("| ").split(" | ")
        for line in page.partition("### Decisions")[0].splitlines()
        if line.startswith("| ")
    ]
    assert [name for name, *_ in rows[2:]] == list(compare.JOBS)
    assert "| servers and tree | 8 of 8 jobs |" in page


def test_testbeds_are_refused_without_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may")
    assert compare.main(["--quick", "--output", str(tmp_path)]) == 1
    assert "need root" in capsys.readouterr().err
