"""The commands of docs/windows.md, in one folder, one after the other, and what it shows of their output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.softswitch.script_program import have_compiler
from tests.system.command import ROOT
from tests.system.console import make_folder, run_step, steps

STEPS = list(steps((ROOT / "docs" / "windows.md").read_text()))


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
def test_the_pages_commands_print_what_it_shows(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "p4src").symlink_to(ROOT / "p4src")  # as in a clone, where the examples find it
    for step in STEPS:
        run_step(folder, *step)
    assert len(STEPS) == 6
