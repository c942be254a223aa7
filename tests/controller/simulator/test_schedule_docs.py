"""What docs/schedulers shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from controller.policies.registry import known
from tests.controller.simulator.commands import schedule

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "schedulers"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
TUTORIAL, REFERENCE, FILES = (PAGES[name] for name in ("tutorial", "reference", "files"))
COMMANDS = sorted(
    {line for page in PAGES.values() for line in page.splitlines() if line.startswith("ina schedule ")}
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, and the jobs that the tutorial says to save."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (jobs,) = re.findall(r"```csv\n(.*?)```", TUTORIAL, re.DOTALL)
    (tmp_path / "jobs.csv").write_text(jobs)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("folder")
def test_commands_run(command: str) -> None:
    arguments = shlex.split(command)[2:]
    simulates = arguments[0] in ("simulate", "sweep")
    ran = schedule(*arguments, *(("--processes", 1) if simulates else ()))
    assert ran.code == 0, ran.complaint
    if arguments[0] == "plan":
        drawn = TUTORIAL.split("example:\n\n```\n")[1].split("```")[0]
        assert drawn in ran.out


def test_the_tutorial_has_commands_of_each_kind() -> None:
    shown = {line.split()[2] for line in TUTORIAL.splitlines() if line.startswith("ina schedule ")}
    assert shown == {"simulate", "policies", "plan", "sweep", "tune", "live"}


@pytest.mark.usefixtures("folder")
def test_the_tables_of_the_tutorial_are_what_is_printed() -> None:
    blocks = re.findall(
        r"```\n(ina schedule simulate .*)\n```\n(?:.*\n)*?```\n(\d.*\n(?:[┃│].*\n)+)```", TUTORIAL
    )
    assert len(blocks) == 2
    for command, table in blocks:
        out = schedule(*shlex.split(command)[2:], "--processes", 1).out
        assert without_times(table) <= without_times(out)


def without_times(text: str) -> set[tuple[str, ...]]:
    """Return the lines of a table as cells, but for the last, which tells how long it took."""
    rows = (re.split("[┃│]", line) for line in text.splitlines())
    return {tuple(cell.strip() for cell in row[1:-2]) if len(row) > 1 else (row[0].strip(),) for row in rows}


def test_the_policy_of_the_reference_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", REFERENCE, re.DOTALL)
    exec(compile(code, "reference.md", "exec"), {"__name__": "page"})
    assert float(capsys.readouterr().out) > 0


def test_the_csv_of_the_page_on_files_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```\n(name,.*?)```", FILES, re.DOTALL)
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    assert schedule("simulate", "--trace", path, "--policy", "fifo", "--processes", 1, "--json").code == 0


def test_the_cluster_of_the_page_on_files_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", FILES, re.DOTALL)
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    ran = schedule(
        "simulate", "--generate", 5, "--cluster", path, "--policy", "fifo", "--processes", 1, "--json"
    )
    assert ran.code == 0, ran.complaint


def test_the_table_of_policies_names_what_there_is() -> None:
    table = REFERENCE.split("## Policies")[1].split("## Writing")[0]
    named = set(re.findall(r"`([a-z0-9-]+)`", table))
    assert {name for name in known() if ":" not in name} <= named


def test_the_error_of_the_reference_is_the_one_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{number},0,{duration},1" for number, duration in enumerate((1, 1, 1, 1, 1, -5))]
    Path("trace.csv").write_text("\n".join(["name,arrival_s,duration_s,gpus", *rows]))
    ran = schedule("simulate", "--trace", "trace.csv")
    assert ran.code == 2
    assert f"ina: {ran.complaint}" in REFERENCE
