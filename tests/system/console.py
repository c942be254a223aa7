"""Runs the commands that a page of docs shows as a terminal session, and compares what it shows of output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import started
from tests.system.command import ROOT


def steps(page: str) -> Iterator[tuple[str, list[str]]]:
    """The page's commands, here-documents included, and the lines that it shows of what each prints."""
    for block in re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            if "<<EOF" in command:
                end = shown.index("EOF")
                command, shown = "\n".join([command, *shown[: end + 1]]), shown[end + 1 :]
            yield command, shown


NEEDS_ROOT = re.compile(
    r"^(sudo |ina topo (up|exec|run|down)\b|ina scenario run .*--runner (netns|mininet)|ina controller --)"
)
"""Commands of pages that root alone can carry out, or that ask for root themselves."""


def needs_root(command: str) -> bool:
    """Return whether a command of a page is carried out by root."""
    return bool(NEEDS_ROOT.search(command)) and not re.search("--dry-run|loopback", command)


def make_folder(made: Path) -> Path:
    """Return a folder with the examples, in which `ina` is this one, and `sudo` does nothing."""
    (made / "examples").symlink_to(ROOT / "examples")
    (made / "bin").mkdir()
    for name, script in (("ina", f'exec {sys.executable} -P -m ina "$@"'), ("sudo", 'exec "$@"')):
        command = made / "bin" / name
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    return made


def run_step(folder: Path, command: str, shown: list[str]) -> None:
    """Run a command in such a folder; the lines that are shown must come, in this order."""
    places = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": ":".join(places), "PYTHONPATH": started.PATH}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    printed = iter(done.stdout.splitlines())
    for line in shown:
        assert line in printed, (command, line, done.stdout)
