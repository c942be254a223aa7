"""The commands of docs/testbeds.md work, in the order in which they stand there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from bmv2_topos.testbeds.netns import bmv2
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.command import ROOT, ina
from tests.system.console import needs_root

PAGE = (ROOT / "docs" / "testbeds.md").read_text()
LINES = [
    line
    for _, block in re.findall(r"^```(\w*)\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line.startswith(("ina topo ", "ina scenario "))
]
PRIVILEGED = [line for line in LINES if needs_root(line)]
OTHERS = [line for line in LINES if line not in PRIVILEGED]
ON_BMV2 = [line for line in PRIVILEGED if "bmv2" in line]
EMBEDDED = [line for line in PRIVILEGED if line not in ON_BMV2]
REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"


def run(line: str) -> str:
    words = shlex.split(line)[1:]
    done = ina(*(sys.executable if word == "python" else word for word in words))
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path))


@pytest.mark.netns
@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_a_testbed_goes_from_up_to_down() -> None:
    assert [line.split()[2] for line in EMBEDDED] == ["up", "exec", "run", "down", "run"]
    try:
        said = [run(line) for line in EMBEDDED]
    finally:
        ina("topo", "down", "--all")
    assert "10.0.0.1/16" in said[1]
    assert "test accuracy 0.9" in said[2]
    assert "FAILED" not in said[4]


@pytest.mark.netns
@pytest.mark.bmv2
@pytest.mark.skipif(bool(REASON or bmv2.missing()), reason=REASON or bmv2.missing())
def test_so_does_one_of_bmv2() -> None:
    assert [line.split()[2] for line in ON_BMV2] == ["up", "run", "down"]
    try:
        said = [run(line) for line in ON_BMV2]
    finally:
        ina("topo", "down", "--all")
    assert "test accuracy 0." in said[1]


@pytest.mark.parametrize("line", OTHERS)
def test_what_needs_no_root_runs(line: str) -> None:
    if "draw" in line:
        pytest.importorskip("matplotlib")
    assert run(line)
