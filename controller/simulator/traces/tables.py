"""TOML files of equal tables, as rows like a CSV's; an error names the line of the table's head."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from controller.scheduling.errors import BadTrace
from controller.simulator.traces.rows import TraceRow, brief, read_text


def read_tables(path: Path, name: str, required: Sequence[str]) -> list[TraceRow]:
    """Return the tables ``[[name]]`` of a TOML file as rows, with at least the keys `required`.

    Numbers and strings become cells; true and false become 1 and 0. Raises BadTrace if the file cannot be
    read, is no TOML, has no such table or anything else beside them, or if a table lacks a key.
    """
    file = str(path)
    text = read_text(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadTrace(file, 0, "", f"not TOML: {error}") from error
    except (ValueError, RecursionError) as error:  # what Python, not TOML, has a limit for
        raise BadTrace(file, 0, "", "a number has too many digits, or brackets are too deep") from error
    tables = document.pop(name, None)
    if document:
        raise BadTrace(file, 0, next(iter(document)), f"unknown; want [[{name}]] tables only")
    if not isinstance(tables, list) or not tables or not all(isinstance(each, dict) for each in tables):
        raise BadTrace(file, 0, name, f"want at least one table [[{name}]], in double brackets")
    lines = _lines(text, name, len(tables))
    rows = []
    for line, table in zip(lines, tables, strict=True):
        row = TraceRow(file, line, {})
        for key, value in table.items():
            if not isinstance(value, str | int | float):
                raise row.fail(key, f"{brief(repr(value))} is neither a number nor a string")
            row.cells[key] = value.strip() if isinstance(value, str) else repr(+value)
        for key in required:
            if key not in row.cells:
                raise row.fail(key, f"missing; the table has {', '.join(row.cells) or 'nothing'}")
        rows.append(row)
    return rows


def _lines(text: str, name: str, count: int) -> list[int]:
    """Return the lines of the tables' heads; zeros if they cannot be told, as with inline tables."""
    head = re.compile(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]")
    found = [number for number, line in enumerate(text.splitlines(), 1) if head.match(line)]
    return found if len(found) == count else [0] * count
