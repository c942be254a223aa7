"""Soak and trial of the controller as a service, and its comparison with a simulation, as short as can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from benchmarks.service import compare, soak
from benchmarks.service.mishaps import MOST_FILES, Size, grown
from tests import effort
from tests.system.clusters import needs_namespaces
from tests.system.command import family

pytestmark = pytest.mark.usefixtures("beds")

# --------------------------------------------------------------------- the soak of the service with r


@effort.if_thorough()
@needs_namespaces
def test_a_short_soak_leaves_nothing(tmp_path: Path) -> None:
    arguments = ["--minutes", "1", "--output", str(tmp_path / "out"), "--folder", str(tmp_path / "run")]
    with family():
        assert soak.main(arguments) == 0
    page = (tmp_path / "out" / "service-soak.md").read_text()
    assert "no findings" in page
    assert page.partition("| event | times |")[2].count("\n| ") > 3


def test_what_a_process_has_too_much_of_is_named() -> None:
    new = Size(20, 9, 100_000)
    assert list(grown("it", Size(20 + MOST_FILES, 30, 140_000), new)) == []
    assert list(grown("it", Size(40, 9, 200_000), new)) == [
        "it has 40 files open at rest, and 20 when it is new",
        "it holds 200000 KiB at rest, and 100000 KiB when it is new",
    ]


# --------------------------------------------------------------------- the controller as a service be


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
