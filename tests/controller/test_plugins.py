"""Policies from files and from entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller import plugins
from controller.errors import BadSpec

SOURCE = """
from __future__ import annotations
from dataclasses import dataclass

RUNS = []
RUNS.append(1)

@dataclass
class Mine:
    share: float = 0.5
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text)
    return path


def test_a_file_is_run_once_and_gives_what_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, SOURCE)
    made = plugins.load(f"{path}:Mine", "ina.memory")()
    assert made.share == 0.5
    assert plugins.load(f"{path}:RUNS", "ina.memory") == [1]


def test_an_installed_packages_entry_point_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ina.memory]\nhalves = ina_mine:Mine\nbroken = ina_mine:Gone\n")
    (tmp_path / "ina_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    assert plugins.load("halves", "ina.memory").__name__ == "Mine"
    assert plugins.names("ina.memory") == ["broken", "halves"]
    with pytest.raises(BadSpec, match=r"'broken' \(ina_mine:Gone\): AttributeError"):
        plugins.load("broken", "ina.memory")


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (SOURCE, "Mien", r"mine.py: no 'Mien' in it; did you mean 'Mine'\?"),
        ("def f(:\n", "f", r"mine.py: SyntaxError: .*line 1"),
        ("1 / 0\n", "f", "mine.py: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, name: str, said: str) -> None:
    with pytest.raises(BadSpec, match=said):
        plugins.load(f"{write(tmp_path, text)}:{name}", "ina.memory")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match=r"gone\.py: No such file"):
        plugins.load(f"{tmp_path}/gone.py:Mine", "ina.memory")
    with pytest.raises(BadSpec, match=r"'gone': no package offers it as ina\.memory"):
        plugins.load("gone", "ina.memory")
