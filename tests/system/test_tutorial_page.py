"""The commands of docs/tutorial.md, in one folder, one after the other, and what it shows of their output."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from bmv2_topos.testbeds.netns import bmv2
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.command import ROOT, ina
from tests.system.console import make_folder, needs_root, run_step, steps

STEPS = list(steps((ROOT / "docs" / "tutorial.md").read_text()))
NO_NAMESPACES = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
NO_BMV2 = NO_NAMESPACES or bmv2.missing()


def part(command: str) -> str:
    if "bmv2" in command or "reference" in command:
        return "bmv2"
    return "testbed" if needs_root(command) or "testbed" in command else "everywhere"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder after all that needs no root."""
    made = make_folder(tmp_path_factory.mktemp("tutorial"))
    try:
        ran = [run_step(made, *step) for step in STEPS if part(step[0]) == "everywhere"]
    finally:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the page ends the switch itself
            os.kill(int((made / "ours.pid").read_text()), signal.SIGTERM)
    assert len(ran) == 42
    return made


def test_what_needs_no_root_prints_what_the_page_shows(folder: Path) -> None:
    assert (folder / "mine" / "include" / "lanes.p4").exists()
    assert (folder / "ours" / "include" / "path_control.p4").exists()


def test_forged_packets_of_the_soak_are_made_of_what_hosts_send(folder: Path) -> None:
    """Frames between switches have the page's header behind their lanes: one of these ended the soak."""
    run_step(folder, "ina soak --program ours/shared.p4 --replay 100", ["all invariants held"])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            "testbed",
            marks=[pytest.mark.netns, pytest.mark.skipif(bool(NO_NAMESPACES), reason=NO_NAMESPACES)],
        ),
        pytest.param(
            "bmv2",
            marks=[
                pytest.mark.netns,
                pytest.mark.bmv2,
                pytest.mark.skipif(bool(NO_BMV2), reason=NO_BMV2),
            ],
        ),
    ],
)
def test_so_does_what_needs_root(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path))
    try:
        ran = [run_step(folder, *step) for step in STEPS if part(step[0]) == name]
    finally:
        ina("topo", "down", "--all")
    assert len(ran) == 8
