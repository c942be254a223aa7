"""The commands of docs/tracing.md, in one folder, one after the other, and what it shows of their output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.command import ROOT

PAGE = (ROOT / "docs" / "tracing.md").read_text()


def steps() -> Iterator[tuple[str, list[str]]]:
    """The page's commands and the lines that it shows of what each prints."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tracing")
    (made / "examples").symlink_to(ROOT / "examples")
    (made / "bin").mkdir()
    command = made / "bin" / "ina"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m controller.cli "$@"\n')
    command.chmod(0o755)
    return made


def test_the_commands_of_the_page_print_what_it_shows(folder: Path) -> None:
    places = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": ":".join(places), "PYTHONPATH": str(ROOT)}
    ran = 0
    for command, shown in steps():
        if command.startswith("tshark") and shutil.which("tshark") is None:
            continue
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        printed = iter(done.stdout.splitlines())
        for line in shown:
            assert line in printed, (command, line, done.stdout)
        ran += 1
    assert ran >= 8
