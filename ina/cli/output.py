"""Tables, progress bars and styled text for people."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Literal, Self

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ina.cli.encoding import visible


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console that prints text verbatim, whatever is in names: "[bold]", ":100:"."""
    # By itself rich takes NO_COLOR for the colours alone, and leaves bold in.
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    if width is None and os.environ.get("COLUMNS") == "0":  # "not known"; rich would print nothing
        width = shutil.get_terminal_size().columns
    return Console(
        stderr=stderr, width=width, markup=False, emoji=False, highlight=False, color_system=system
    )


out = console()
err = console(stderr=True)


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = ()
) -> None:
    """Print a plain table.

    Args:
        title: A line above it.
        columns: Their names.
        rows: The cells.
        left: Columns that align left, as the first one does; the others align right.
    """
    out.print(visible(title), style="bold", soft_wrap=True)
    view = Table()
    for index, column in enumerate(columns):
        text = index == 0 or column in left
        view.add_column(column, justify="left" if text else "right", no_wrap=True)
    for row in rows:
        view.add_row(*map(visible, row))
    if out.is_terminal:
        out.print(view)
    else:  # a file is as wide as it needs to be
        needed = Measurement.get(out, out.options.update(max_width=10_000), view).maximum
        console(width=needed).print(view)


class Bar:
    """A progress bar; shown on a terminal only."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=err, transient=True
        )
        self._task = self._progress.add_task("starting", total=1.0)

    def show(self, share: float, text: str) -> None:
        """Show the finished fraction of the work, 0 to 1, with a text."""
        self._progress.update(self._task, completed=share, description=text)

    def __enter__(self) -> Self:
        if err.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if err.is_terminal:
            self._progress.stop()
