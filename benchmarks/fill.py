"""What the makers of pages share: their options, pages that commands fill between two marks, the terminal."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bmv2_topos.harness.page import END, mark_of, with_tables

Option = tuple[tuple[str, ...], dict[str, Any]]


def option(*names: str, **given: Any) -> Option:
    """Return an option as `argparse.ArgumentParser.add_argument` takes it."""
    return names, given


def asked(
    doc: str | None, *options: Option, words: Sequence[str] | None = None, **given: Any
) -> argparse.Namespace:
    """Return what the command line says; `words` stand for it, `given` is for `argparse.ArgumentParser`."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, **{"formatter_class": form, **given})
    for names, settings in options:
        parser.add_argument(*names, **settings)
    return parser.parse_args(words)


def check(path: Path) -> None:
    """Raise ValueError for a page that cannot be filled; to be called before the work, not after it."""
    if path.exists():
        with_tables(path.read_text(encoding="utf-8"), "")


def fill(path: Path, tables: str, name: str = "") -> None:
    """Write `tables` into the page at `path`, or its part `name`; marks are made where there are none yet.

    Raises ValueError for a page that lacks its marks.
    """
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    mark = mark_of(name)
    if mark not in page and (name or not page):
        page += f"{mark}\n{END}\n"
    path.write_text(with_tables(page, tables, name), encoding="utf-8")


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
