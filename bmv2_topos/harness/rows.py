"""Rows of results, and helpers for tables of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from controller.vocabulary.lists import by_key

Value = float | int | str | None
ResultRow = Mapping[str, Value]
"""One run of an experiment: its labels and measured values by column."""


def grouped(rows: Sequence[ResultRow], *by: str) -> dict[tuple[Any, ...], list[ResultRow]]:
    """Return the rows grouped by their values in these columns, in the order of first occurrence."""
    return by_key((tuple(row[key] for key in by), row) for row in rows)


def number(row: ResultRow, column: str) -> float:
    """Return the number in a column of a row. Raises TypeError if the value is not a number."""
    value = row[column]
    if not isinstance(value, int | float):
        raise TypeError(f"column {column} is {value!r} in the row {dict(row)}, want a number")
    return float(value)


def selected(rows: Sequence[ResultRow], **labels: Value) -> list[ResultRow]:
    """Return the rows with these labels."""
    return [row for row in rows if all(row[name] == value for name, value in labels.items())]


def column(rows: Sequence[ResultRow], name: str, **labels: Value) -> list[float]:
    """Return the numbers in the column `name` of the rows with these labels, in the order of the rows."""
    return [number(row, name) for row in selected(rows, **labels)]


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Return mean, minimum and maximum as text, such as ``1.50 (1.25..1.75)``; `form`: a format specifier."""
    mean, least, most = (
        format(value, form) for value in (statistics.fmean(values), min(values), max(values))
    )
    return mean if least == most else f"{mean} ({least}..{most})"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first align right."""
    rule = f"| --- |{' ---: |' * (len(columns) - 1)}"
    return "\n".join([_line(columns), rule, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    """Return a line of a Markdown table: a bar in a cell is escaped, a line break becomes a space."""
    texts = (" ".join(cell.splitlines()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


def plain(value: Value) -> Value:
    """Return a value in a form that JSON can hold: infinity becomes a string, and NaN None.

    >>> [plain(value) for value in (1.5, float("nan"), float("-inf"))]
    [1.5, None, '-inf']
    """
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)
