"""Tables, progress bars and styled text for people."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from ina.cli.command import Aside, Failure, Listing, refuse
from ina.cli.screen import visible


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console that prints text unchanged, also text that rich would take for markup: "[bold]"."""
    # With NO_COLOR, rich by default drops colours alone, and keeps bold.
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    if width is None and os.environ.get("COLUMNS") == "0":  # "not known"; rich would print nothing
        width = shutil.get_terminal_size().columns
    return Console(
        stderr=stderr, width=width, markup=False, emoji=False, highlight=False, color_system=system
    )


out = console()
err = console(stderr=True)


def show(parts: Iterable[Listing | str]) -> None:
    """Print the tables and lines of a reply to standard output, each `Aside` to standard error."""
    for part in parts:
        if isinstance(part, Listing):
            _table(part)
        elif isinstance(part, Aside):
            err.print(visible(part), soft_wrap=True)
        else:
            out.print(visible(part), soft_wrap=True)


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    left: Collection[str] = (),
    folded: str = "",
) -> None:
    """Print a table; for the parameters, see `Listing`."""
    _table(Listing(title, columns, rows, left, folded))


def _table(of: Listing) -> None:
    """Print a table without cutting any text.

    If the table is wider than the terminal, wrap the cells of its `folded` column. If this does not suffice,
    let the terminal wrap the rows.
    """
    out.print(visible(of.title), style="bold", soft_wrap=True)
    if not of.columns:
        return
    cells = [[visible(str(cell)) for cell in row] for row in of.rows]
    view = Table(show_lines=any("\n" in cell for row in cells for cell in row))
    widths = [
        max(cell_len(line) for cell in column for line in cell.split("\n"))
        for column in zip(of.columns, *cells, strict=True)
    ]
    least = [min(w, 16) if name == of.folded else w for name, w in zip(of.columns, widths, strict=True)]
    for number, (name, width) in enumerate(zip(of.columns, least, strict=True)):
        text = number == 0 or name in (*of.left, of.folded) or view.show_lines
        view.add_column(name, justify="left" if text else "right", min_width=width, overflow="fold")
    for row in cells:
        view.add_row(*row)
    frame = 3 * len(widths) + 1
    wide = max(out.width, sum(least) + frame) if out.is_terminal else sum(widths) + frame
    console(width=wide).print(view)


def check_plots(option: str, path: Path | None) -> None:
    """Raise Failure if a wanted plot cannot be drawn: its format is unknown, or matplotlib is missing."""
    if path is None:
        return
    from controller.figures import FORMATS, PlotsMissing, check

    refuse(path.suffix not in FORMATS, f"{option} {path}: want a name that ends in {', '.join(FORMATS)}")
    try:
        check()
    except PlotsMissing as error:
        raise Failure(f"{option}: {error}") from error


class Bars(Progress):
    """Progress bars on a terminal: one for each task, or, with the title `together`, one for all tasks."""

    def __init__(self, names: Sequence[str] = ("starting",), *, together: str = "") -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        super().__init__(*columns, console=err, transient=True, disable=not err.is_terminal)
        self._parts = [0.0] * len(names)
        for name in [together] if together else names:
            self.add_task(name, total=len(names) if together else 1.0)

    @property
    def reports(self) -> Callable[[int, float], None] | None:
        """Function (number of a task, finished share 0 to 1) that updates a bar; None without a terminal."""
        return None if self.disable else self._report

    def _report(self, number: int, share: float) -> None:
        self._parts[number] = share
        alone = len(self.task_ids) == len(self._parts)
        self.update(self.task_ids[number if alone else 0], completed=share if alone else sum(self._parts))

    def show(self, share: float, text: str) -> None:
        """Show the finished share of the only task, 0 to 1, and a text beside the bar."""
        self.update(self.task_ids[0], completed=share, description=text)
