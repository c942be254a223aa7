"""Output of results: pages that people write and commands fill between two marks, and the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from bmv2_topos.harness.page import BEGIN, END, with_tables


def check(path: Path) -> None:
    """Raise ValueError for a page that cannot be filled; to be called before the work, not after it."""
    if path.exists():
        with_tables(path.read_text(encoding="utf-8"), "")


def fill(path: Path, tables: str) -> None:
    """Write `tables` into the page at `path`; where there is none yet, they are all of it."""
    page = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    path.write_text(with_tables(page, tables), encoding="utf-8")


def publish(folder: Path, name: str, tables: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Write `tables` into the page of this name in `folder`, which is made, and `rows` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    fill(folder / f"{name}.md", tables)
    document = json.dumps({"name": name, "rows": rows}, indent=1)
    (folder / f"{name}.json").write_text(document + "\n", encoding="utf-8")


def console() -> Console:
    """Return the terminal, or, where there is none, a page wide enough for every table."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=200)
