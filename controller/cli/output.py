"""Output of results for people (tables) and for programs (one JSON object)."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from controller.cli.screen import screen


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return where text goes as it is, whatever people named: "[bold]", ":100:"."""
    # By itself rich takes NO_COLOR for the colours alone, and leaves bold in.
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(
        stderr=stderr, width=width, markup=False, emoji=False, highlight=False, color_system=system
    )


out = console()
err = console(stderr=True)

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)((?P<prefix>[KMG])i?)?B?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a command: `metrics` is flat, with SI units in the keys; so is each job, each switch."""

    name: str
    setup: Mapping[str, object]
    metrics: Mapping[str, object]
    jobs: Mapping[str, Mapping[str, object]] | None = None
    switches: Mapping[str, Mapping[str, object]] | None = None

    def print_json(self) -> None:
        """Print the one JSON object that ``--json`` promises."""
        fields = {"name": self.name, "setup": dict(self.setup), "metrics": dict(self.metrics)}
        for name, parts in (("jobs", self.jobs), ("switches", self.switches)):
            if parts is not None:
                fields[name] = {part: dict(numbers) for part, numbers in parts.items()}
        print(json.dumps(fields, indent=2))


def say(text: str) -> None:
    """Print something in whole lines to standard error."""
    with screen.message(sys.stderr):
        err.print(text, soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table; the first column is text, the others align right."""
    out.print(title, style="bold", soft_wrap=True)
    view = Table()
    for index, column in enumerate(columns):
        view.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        view.add_row(*row)
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
        """Show how much of the work is done, 0 to 1, and say so."""
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


def seconds(value: float) -> str:
    """Format a duration for people."""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(value) < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s"


def rate(bits_per_second: float) -> str:
    """Format a bit rate for people."""
    for limit, unit in ((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if bits_per_second >= limit:
            return f"{bits_per_second / limit:.3g} {unit}"
    return f"{bits_per_second:.3g} b/s"


def count(value: float) -> str:
    """Format a number with thousands separated."""
    return f"{value:,.0f}"


def plural(number: float, noun: str) -> str:
    """Format a number of things, whose name ends in -s if there are more."""
    if number == 1:
        return f"{count(number)} {noun}"
    return f"{count(number)} {noun}" + ("es" if noun.endswith("s") else "s")


def parse_size(text: str) -> int:
    """Turn ``64MB``, ``4KB``, ``1GiB`` or ``1000`` into bytes.

    KB, MB and GB are powers of 1024 here, as collective benchmarks use them (NCCL tests, OSU).

    Raises:
        ValueError: not a positive number with one of these units.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or not float(match["number"]):
        raise ValueError(f"{text!r} is not a size such as 64MB, 4KB or 1000")
    return int(float(match["number"]) * 1024 ** " KMG".index((match["prefix"] or " ").upper()))
