"""Common parts of the makers of pages: options, pages filled between two marks, the terminal."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console

from bmv2_topos.harness.page import END, mark_of, with_tables
from controller.errors import ControllerError
from ina.cli.command import Result, count, print_json, rate, seconds
from ina.cli.output import table

P = ParamSpec("P")
T = TypeVar("T")
Option = tuple[tuple[str, ...], dict[str, Any]]
Seed = Annotated[int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same work.")]


UNITS: Mapping[str, Callable[[float], str]] = {"_per_s": count, "_bps": rate, "_s": seconds}
"""Functions that show the numbers of a column, by the end of its name; the first that fits counts."""


def option(*names: str, **given: Any) -> Option:
    """Return the arguments of `argparse.ArgumentParser.add_argument` for an option."""
    return names, given


def parse_options(
    doc: str | None, *options: Option, words: Sequence[str] | None = None, **given: Any
) -> argparse.Namespace:
    """Return the values of options on the command line.

    Args:
        doc: The description of the command.
        *options: Its options.
        words: The command line; None: the process's own.
        **given: Further arguments of `argparse.ArgumentParser`.
    """
    parser = argparse.ArgumentParser(
        description=doc, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **given}
    )
    for names, settings in options:
        parser.add_argument(*names, **settings)
    return parser.parse_args(words)


@dataclass(frozen=True, slots=True)
class Command:
    """One of several measurements of a module: its name, its function, and its options.

    `run` returns its rows and the title of their table.
    """

    name: str
    about: str
    run: Callable[[argparse.Namespace], tuple[Sequence[Mapping[str, object]], str]]
    options: Sequence[Option]
    epilog: str | None = None


def serve(prog: str, doc: str | None, *commands: Command) -> None:
    """Run the command named on the command line, and print its rows: a table, or JSON with ``--json``."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=doc, formatter_class=form)
    kinds = parser.add_subparsers(required=True)
    for each in commands:
        made = kinds.add_parser(each.name, help=each.about, epilog=each.epilog, formatter_class=form)
        made.set_defaults(run=each.run)
        for names, settings in (*each.options, option("--json", action="store_true")):
            made.add_argument(*names, **settings)
    given = parser.parse_args()
    try:
        rows, title = given.run(given)
    except (ControllerError, OSError, ValueError) as error:
        raise SystemExit(f"{prog}: {error}") from None
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print_rows(title, rows)


def timed(work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> tuple[T, float]:
    """Return the result of a call, and how long the call took, in seconds."""
    began = time.perf_counter()
    found = work(*arguments, **options)
    return found, time.perf_counter() - began


def print_rows(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows as a table, with the columns of the first row."""
    columns = list(rows[0])
    table(title, columns, [[text(column, row.get(column)) for column in columns] for row in rows])


def text(column: str, value: object) -> str:
    """Format a cell by its unit, the end of the column's name."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "" if value is None else str(value)
    for ending, shown in UNITS.items():
        if column.endswith(ending):
            return shown(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value >= 100 else f"{value:.3f}"


def show(name: str, setup: Mapping[str, object], found: Mapping[str, object], *, as_json: bool) -> None:
    """Print figures by name: as one JSON object, or as a table; mappings are rows of one table."""
    if as_json:
        print_json(Result(f"speed {name}", setup, found))
        return
    title = f"{name}: {', '.join(f'{key} {value}' for key, value in setup.items() if value is not None)}"
    rows = {key: value for key, value in found.items() if isinstance(value, Mapping)}
    if plain := [[key, text(key, value)] for key, value in found.items() if key not in rows]:
        table(title, ["", ""], plain)
    if rows:
        print_rows(title, [{"": key, **row} for key, row in rows.items()])


def check(path: Path) -> None:
    """Raise ValueError for a page that cannot be filled. Call it before the work."""
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
    lines = ",\n".join(map(json.dumps, rows))
    text = f'{{"name": {json.dumps(name)}, "rows": [\n{lines}\n]}}\n'
    (folder / f"{name}.json").write_text(text, encoding="utf-8")


def console() -> Console:
    """Return a console on the terminal; without one, a console wide enough for every table."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=200)
