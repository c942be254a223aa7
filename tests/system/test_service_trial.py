"""The trial of the controller as a service, and its comparison with a simulation, as short as they can be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("matplotlib")

from benchmarks.service import compare, trial
from tests.system.clusters import needs_namespaces
from tests.system.command import family


@pytest.fixture(autouse=True)
def _own_testbeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path / "testbeds"))


@needs_namespaces
def test_all_jobs_end_while_controller_switch_and_link_are_lost(tmp_path: Path) -> None:
    with family():
        assert trial.main(["--quick", "--output", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "service-trial.json").read_text())["rows"]
    jobs = [row for row in rows if row["kind"] == "job"]
    assert len(jobs) == 8
    assert {row["state"] for row in jobs} == {"completed"}
    done = [row["what"].split(" ")[0] for row in rows if row["kind"] == "fault"]
    assert sorted(done) == ["controller"] * 3 + ["link"] * 2 + ["switch"] * 2
    assert "8 of 8 jobs completed" in (tmp_path / "service-trial.md").read_text()
    assert (tmp_path / "service-trial.svg").stat().st_size > 1000


@needs_namespaces
def test_the_same_jobs_are_simulated_and_live(tmp_path: Path) -> None:
    with family():
        assert compare.main(["--quick", "--output", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "service-simulated.json").read_text())["rows"]
    jobs = [row for row in rows if "job" in row]
    assert len(jobs) == 8
    for row in jobs:
        parts = sum(row[key] for key in compare._PARTS.values())
        assert parts == pytest.approx(row["live_s"] - row["simulated_s"], abs=1e-6)
    simulated, live = (row for row in rows if "run" in row)
    assert live["places"].keys() == simulated["places"].keys()


def test_testbeds_are_refused_without_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may")
    assert trial.main(["--quick", "--output", str(tmp_path)]) == 1
    assert "need root" in capsys.readouterr().err
