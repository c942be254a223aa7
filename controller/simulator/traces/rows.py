"""Read a table of jobs, with typed cells, and with errors that name file, line and column."""

from __future__ import annotations

import csv
import io
import math
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from controller.policies.scheduling.errors import BadSpec, BadTrace, SchedulingError
from controller.policies.scheduling.policy import Submission
from controller.vocabulary import Cluster
from controller.vocabulary.documents import brief, encoding_of
from controller.vocabulary.errors import plural

SMALLEST, LARGEST = 1e-9, 1e12
"""Minimum and maximum of a positive number. With other numbers, rounding would lose small addends in sums of
seconds."""

JobCheck = Callable[[Submission], None]
"""Function that raises BadSpec or a SchedulingError for a job of an unknown model."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One line of a trace, as text by column."""

    path: str
    line: int
    cells: dict[str, str]

    def fail(self, column: str, message: str) -> BadTrace:
        """Return the error to raise about a cell."""
        return BadTrace(self.path, self.line, column, message)

    def has(self, column: str) -> bool:
        """Return whether the row has a cell for the column that is not empty."""
        return bool(self.cells.get(column))

    def text(self, column: str) -> str:
        """Return the cell, which must not be empty."""
        value = self.cells[column]
        if not value:
            raise self.fail(column, "empty")
        return value

    def number(self, column: str, *, positive: bool = False) -> float:
        """Return the cell as a number that is not negative (with `positive`: above 0)."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.fail(column, f"{brief(repr(text))} is not a number") from None
        if not math.isfinite(value):
            raise self.fail(column, f"{brief(text)} is not a finite number")
        if value < 0 or (positive and value == 0):
            raise self.fail(column, f"{brief(text)} must {'be positive' if positive else 'not be negative'}")
        if value > LARGEST or (positive and value < SMALLEST):
            raise self.fail(column, f"{brief(text)} must be at least {SMALLEST:g} and at most {LARGEST:g}")
        return value

    def whole(self, column: str, *, least: int = 0) -> int:
        """Return the cell as a whole number of at least `least`."""
        value = self.number(column)
        if value != int(value) or value < least:
            raise self.fail(column, f"{brief(self.cells[column])} must be a whole number of at least {least}")
        return int(value)

    def flag(self, column: str) -> bool:
        """Return whether the cell is 1. Raises BadTrace if it is neither 0 nor 1."""
        if (text := self.text(column)) not in ("0", "1"):
            raise self.fail(column, f"{brief(repr(text))} must be 0 or 1")
        return text == "1"

    def moment_s(self, column: str) -> float:
        """Return the cell, a date and time, as seconds since 1970 without a time zone."""
        text = self.text(column)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self.fail(
                column, f"{brief(repr(text))} is not a date and time like 2017-10-03 12:00:00"
            ) from None
        return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()


def read_text(path: Path) -> str:
    """Return the text of a regular file, without a byte order mark. Raises BadTrace.

    Pipes and devices are refused: a trace is read more than once, by several processes.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadTrace(str(path), 0, "", "cannot be read: not a regular file")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadTrace(str(path), 0, "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadTrace(str(path), 0, "", f"cannot be read: {encoding_of(path)}") from error
    if "\0" in text[:2]:  # as in UTF-16 without a mark
        raise BadTrace(str(path), 0, "", f"cannot be read: {encoding_of(path)}")
    return text


def delimiter_of(header: str) -> str:
    """Return the separator of the cells of a line: a comma, or "|" as in ``sacct --parsable`` output."""
    return "|" if "|" in header and "," not in header else ","


def present(column: str, columns: Collection[str]) -> str:
    """Return the first name in `column` (names separated by "|") that is in `columns`; "" if none is."""
    return next((name for name in column.split("|") if name in columns), "")


def read_rows(
    path: Path,
    required: Sequence[str],
    *,
    old: Mapping[str, str] | None = None,
    header: Sequence[str] = (),
    delimiter: str = ",",
    what: str = "jobs",
) -> list[TraceRow]:
    """Return the rows of a table of jobs; blank lines are skipped.

    Args:
        path: The file.
        required: Columns that the file must have; of names separated by "|", one is enough.
        old: The present names of columns by their former names; a file with a former name is refused.
        header: Names of the columns if the file has no header line.
        delimiter: Character between cells.
        what: Noun for the rows in error messages.

    Raises BadTrace if the file cannot be read, has no row, lacks a column or has it twice, or has a row with
    too few or too many cells.
    """
    name = str(path)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    columns = list(header)
    rows: list[TraceRow] = []
    try:
        for cells in reader:
            if not any(cells):
                continue
            if not columns:
                columns = [cell.strip() for cell in cells]
                missing = [column for column in required if not present(column, columns)]
                again = [column for number, column in enumerate(columns) if column in columns[:number]]
                if renamed := [column for column in columns if column in (old or {})]:
                    now = (old or {})[renamed[0]]
                    raise BadTrace(name, reader.line_num, renamed[0], f"is no column: want {now}")
                if again:
                    raise BadTrace(name, reader.line_num, again[0], "there twice")
                if missing:
                    raise BadTrace(
                        name, reader.line_num, missing[0], f"missing; the columns are {', '.join(columns)}"
                    )
                continue
            if len(cells) != len(columns):
                raise BadTrace(
                    name, reader.line_num, "", f"{len(cells)} cells in a table of {len(columns)} columns"
                )
            values = (cell.strip() for cell in cells)
            rows.append(TraceRow(name, reader.line_num, dict(zip(columns, values, strict=True))))
    except csv.Error as error:
        raise BadTrace(name, reader.line_num, "", str(error)) from error
    if not rows:
        raise BadTrace(name, 0, "", f"no {what} in it")
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumns:
    """The columns that errors name, by the kind of error.

    Attributes:
        gpus: Column for jobs larger than the cluster.
        submit: Column for times that are not in order.
        id: Column for names that recur or cannot be printed.
        model: Column for jobs whose speed is unknown.
    """

    gpus: str
    submit: str
    id: str = ""
    model: str = ""


def collect(
    rows: Iterable[TraceRow],
    make: Callable[[TraceRow], Submission],
    named: JobColumns,
    cluster: Cluster | None = None,
    known: JobCheck | None = None,
    *,
    ordered: bool = True,
) -> list[Submission]:
    """Return a job for each row.

    Args:
        rows: The rows.
        make: Function that makes a job from a row.
        named: The columns that errors name.
        cluster: If given, a job larger than this is an error.
        known: Function that raises for a job whose speed is unknown; None: no check.
        ordered: Whether rows must be in order of submission; if not, jobs are sorted.

    Raises BadTrace for the first row with an error.
    """
    specs: list[Submission] = []
    lines: dict[str, int] = {}
    for row in rows:
        try:
            spec = make(row)
        except BadSpec as error:
            raise row.fail("", str(error)) from error
        if not spec.name.isprintable():
            raise row.fail(named.id, f"{brief(repr(spec.name))} has characters that cannot be printed")
        if spec.name in lines:
            raise row.fail(named.id, f"job {brief(repr(spec.name))} was on line {lines[spec.name]} already")
        lines[spec.name] = row.line
        if cluster is not None and spec.gpus > cluster.gpus:
            raise row.fail(
                named.gpus,
                f"job {spec.name!r} asks for {plural(spec.gpus, 'GPU')}; the cluster has {cluster.gpus}",
            )
        if known is not None:
            try:
                known(spec)
            except (BadSpec, SchedulingError) as error:
                raise row.fail(named.model, str(error)) from error
        if not SMALLEST <= spec.duration_s <= LARGEST:
            raise row.fail(
                "",
                f"job {spec.name!r} runs for {spec.duration_s:g} s; it must be at least {SMALLEST:g}"
                f" and at most {LARGEST:g}",
            )
        if ordered and specs and spec.arrival_s < specs[-1].arrival_s:
            raise row.fail(named.submit, f"job {spec.name!r} comes before the job on the line above")
        specs.append(spec)
    if not ordered:
        specs.sort(key=lambda spec: spec.arrival_s)
    return specs
