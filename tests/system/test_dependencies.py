"""The command line and ranks with the oldest and with the newest release of each dependency."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.system.command import ENVIRONMENT, ROOT

RANK = "import hostlib; hostlib.init(); print(hostlib.allreduce([1.0, 2.0]).tolist()); hostlib.shutdown()"


def wanted(end: str) -> list[str]:
    """Return what to install: of each dependency the oldest release that may be, or the newest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", each) for each in project["dependencies"]]
    assert all(found), "each has a lower bound, and no upper one"
    return [f"{each[1]}=={each[2]}" if end == "oldest" else each[0] for each in found if each]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_commands_and_ranks_work_with_the_releases_of_each_end(end: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path), *wanted(end)]
    installed = subprocess.run(command, capture_output=True, text=True)
    if re.search("Connection|Temporary failure|from versions: none", installed.stderr):
        pytest.skip("needs a package index")
    assert installed.returncode == 0, installed.stderr

    def ina(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(tmp_path), str(ROOT)])
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": path}
        command = [sys.executable, "-P", "-m", "ina", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    for arguments, status, text in (
        (("--help",), 0, "admit"),
        (("admit", "--help"), 0, "--straggler-timeout"),
        (("compile", "p4src/exclusive.p4", "--json"), 0, '"c_lines"'),
        (("run", "-np", "2", "--timeout", "nan", "--", "true"), 2, "Invalid value for '--timeout'"),
        (("compile", "nosuch.p4"), 2, "nosuch.p4: No such file or directory"),
        (("run", "-np", "2", "--", sys.executable, "-c", RANK), 0, "[0] [2.0, 4.0]"),
    ):
        done = ina(*arguments)
        assert (done.returncode, text in done.stdout + done.stderr) == (status, True), (arguments, done)
