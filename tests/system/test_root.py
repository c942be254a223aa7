"""Commands that only root can carry out, started by another user: they go on with sudo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.command import ROOT

AS_SOMEBODY = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def why_not() -> str:
    """Return why nobody else can be played here; "": it can."""
    try:
        done = subprocess.run([*AS_SOMEBODY, "true"], capture_output=True, text=True)
    except FileNotFoundError:
        return "no unshare command"
    return done.stderr.strip()


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def ina_as_somebody(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``ina arguments…`` as user 1000, with the programs of a folder, ip and tc, and no others."""
    for tool in ("ip", "tc"):
        (folder / tool).touch(mode=0o755)
    variables = (f"PATH={folder}", f"HOME={folder}", "INA_TESTBEDS=/nowhere", "NO_COLOR=1")
    somebody = (_path(AS_SOMEBODY[0]), *AS_SOMEBODY[1:])
    return subprocess.run(
        ["/usr/bin/env", "-i", *variables, *somebody, sys.executable, "-P", "-m", "ina", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def _path(program: str) -> str:
    return next(
        f"{folder}/{program}"
        for folder in os.environ["PATH"].split(os.pathsep)
        if os.access(f"{folder}/{program}", os.X_OK)
    )


@pytest.mark.parametrize(
    "command", [("topo", "up", "two-racks:1", "--name", "a b"), ("topo", "run", "dumbbell", "--", "true")]
)
def test_the_same_command_is_run_by_sudo(tmp_path: Path, command: tuple[str, ...]) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\nexit 7\n')
    sudo.chmod(0o755)
    done = ina_as_somebody(tmp_path, *command)
    words = done.stdout.replace("<", "").replace(">", "").splitlines()
    assert done.returncode == 7, done.stderr
    assert words[:2] == ["--", "env"]
    assert "INA_TESTBEDS=/nowhere" in words
    assert f"PATH={tmp_path}" in words
    assert words[-len(command) - 4 :] == [sys.executable, "-P", "-m", "ina", *command]
    assert "network namespaces need root" in done.stderr
    assert "going on with sudo" in done.stderr


def test_without_sudo_the_command_for_root_is_given(tmp_path: Path) -> None:
    done = ina_as_somebody(tmp_path, "topo", "up", "two-racks:1")
    assert done.returncode == 1
    assert "There is no sudo here; as root, run env" in done.stderr
    assert done.stderr.rstrip().endswith("-P -m ina topo up two-racks:1")


def test_what_needs_no_root_does_not_ask_for_it(tmp_path: Path) -> None:
    done = ina_as_somebody(tmp_path, "topo", "up", "two-racks:1", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "sudo" not in done.stderr
