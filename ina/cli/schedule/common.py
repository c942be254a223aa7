"""Common parts of ``ina schedule``: refusals, tables, checks before a run, and progress bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.cells import cell_len
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from controller.figures import FORMATS, PlotsMissing, check
from ina.cli.errors import USAGE, Failure
from ina.cli.output import console, err, out


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, folded: str = "") -> None:
    """Print a table without truncation: a narrow terminal folds the column `folded`, or wraps all.

    A cell may have several lines; then rows are separated by lines.

    Args:
        title: The title.
        columns: The headings.
        rows: The cells, row by row.
        folded: Heading of the column to fold.
    """
    out.print(title, style="bold", highlight=False, soft_wrap=True)
    view = Table(show_lines=any("\n" in cell for row in rows for cell in row))
    widths = [
        max(cell_len(line) for cell in cells for line in cell.split("\n"))
        for cells in zip(columns, *rows, strict=True)
    ]
    least = [min(width, 16) if name == folded else width for name, width in zip(columns, widths, strict=True)]
    for number, (column, width) in enumerate(zip(columns, least, strict=True)):
        text = number == 0 or column == folded or view.show_lines
        view.add_column(column, justify="left" if text else "right", min_width=width, overflow="fold")
    for row in rows:
        view.add_row(*row)
    frame = 3 * len(columns) + 1
    wide = max(out.width, sum(least) + frame) if out.is_terminal else sum(widths) + frame
    console(width=wide).print(view)


def check_plots(option: str, path: Path | None = None) -> None:
    """Check before the run that a plot can be drawn: its format, and that matplotlib is there."""
    if path is not None and path.suffix not in FORMATS:
        raise Failure(f"{option} {path}: want a name that ends in {', '.join(FORMATS)}", USAGE)
    try:
        check()
    except PlotsMissing as error:
        raise Failure(f"{option}: {error}") from error


class Bars:
    """Progress bars, on a terminal only: one for each task, or one for all."""

    def __init__(self, names: Sequence[str], *, together: str = "") -> None:
        self.shown = err.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self._parts = [0.0] * len(names)
        self._tasks = [
            self._progress.add_task(name, total=1.0 if not together else len(names))
            for name in ([together] if together else names)
        ]

    def update(self, number: int, fraction: float) -> None:
        """Show the finished fraction of a task."""
        self._parts[number] = fraction
        if len(self._tasks) == len(self._parts):
            self._progress.update(self._tasks[number], completed=fraction)
        else:
            self._progress.update(self._tasks[0], completed=sum(self._parts))

    def __enter__(self) -> Self:
        if self.shown:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown:
            self._progress.stop()
