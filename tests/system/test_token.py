"""A job's token is in the environment of its workers and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.command import here, worker


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_the_token_is_in_no_command_line_and_no_output(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = here(
        "run", "-np", 2, "--lanes", 32, *options, *worker("odd_ranks.py", "telltale", tmp_path / "token")
    )
    token = (tmp_path / "token").read_text()
    assert done.returncode == 1
    assert len(token) == 64
    said = done.stdout + done.stderr
    assert "JobConfig(" in said
    assert "NonFiniteError" in said
    assert "shows the token" not in said
    assert token not in said
    if os.geteuid() == 0:
        assert "another user: cat: /proc/" in said
        assert "Permission denied" in said
