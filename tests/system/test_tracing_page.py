"""The commands of docs/tracing.md, in one folder, one after the other, and what it shows of their output."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.system.command import ROOT
from tests.system.console import make_folder, run_step, steps

PAGE = (ROOT / "docs" / "tracing.md").read_text()


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    ran = 0
    for command, shown in steps(PAGE):
        if command.startswith("tshark") and shutil.which("tshark") is None:
            continue
        run_step(folder, command, shown)
        ran += 1
    assert ran >= 8
