"""What docs/schedulers.md shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from controller.simulator.policies import known
from tests.controller.simulator.commands import schedule

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "schedulers.md").read_text(encoding="utf-8")
COMMANDS = [line for line in PAGE.splitlines() if line.startswith("ina schedule ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_quick_start(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(command)[2:]
    simulates = arguments[0] in ("simulate", "sweep")
    ran = schedule(*arguments, *(("--processes", 1) if simulates else ()))
    assert ran.code == 0
    if arguments[0] == "plan":
        drawn = PAGE.split("when:\n\n```\n")[1].split("```")[0]
        assert drawn in ran.out


def test_the_policy_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "schedulers.md", "exec"), {"__name__": "page"})
    assert float(capsys.readouterr().out) > 0


def test_the_csv_of_the_page_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```\n(job_id,.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    assert schedule("simulate", "--trace", path, "--policy", "fifo", "--processes", 1, "--json").code == 0


def test_the_table_of_policies_names_what_there_is() -> None:
    table = PAGE.split("## Policies")[1].split("## Files")[0]
    named = set(re.findall(r"`([a-z0-9-]+)`", table))
    assert {name for name in known() if ":" not in name} <= named
