"""The files of an experiment: its rows (JSON), its page (Markdown) and its plots (SVG).

Commands write tables and plots between two marks of a page; the text outside the marks is written by people,
and commands leave it unchanged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bmv2_topos.harness.model import Experiment
from bmv2_topos.harness.rows import ResultRow
from controller.figures import PlotsMissing

_log = logging.getLogger(__name__)

BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"


def mark_of(part: str) -> str:
    """Return the line that marks where the tables of a part of a page begin.

    `part` is the part's name. "": return the line that marks where the tables of an undivided page begin.
    """
    return BEGIN.replace("measured", f"measured: {part}") if part else BEGIN


def with_tables(page: str, tables: str, part: str = "") -> str:
    """Return `page` with `tables` between the marks of a part, replacing the earlier text.

    Raises ValueError if the page has no such marks.
    """
    mark = mark_of(part)
    before, begin, rest = page.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {mark} and {END}, between which the tables go")
    return f"{before}{mark}\n{tables}\n{END}{after}"


def read(experiment: Experiment, directory: Path) -> tuple[list[ResultRow], str]:
    """Return the rows written by `write`, and the command that made them. Raises OSError."""
    document = json.loads((directory / f"{experiment.name}.json").read_text(encoding="utf-8"))
    return rows_of(document), document["command"]


def rows_of(document: Mapping[str, Any]) -> list[ResultRow]:
    """Return the rows of a file.

    The file holds lists of column names. Each of its rows is the index of one of these lists, followed by a
    value for each column.
    """
    columns = document["columns"]
    return [dict(zip(columns[kind], values, strict=True)) for kind, *values in document["rows"]]


def write(experiment: Experiment, rows: Sequence[ResultRow], directory: Path, *, command: str) -> list[Path]:
    """Write the rows, the page and the plots. Without matplotlib there are no plots.

    An existing page with the marks `BEGIN` and `END` gets new tables and plots between them; any other page
    is written anew.

    Args:
        experiment: The experiment.
        rows: The rows of all runs.
        directory: Where to write; created if missing.
        command: The command that makes the page again.

    Returns:
        The written files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    base = directory / experiment.name
    columns = list(dict.fromkeys(tuple(row) for row in rows))
    head = json.dumps({"name": experiment.name, "command": command, "columns": columns}, indent=1)
    found = (json.dumps([columns.index(tuple(row)), *row.values()], allow_nan=False) for row in rows)
    data = base.with_suffix(".json")
    body = ",\n".join(found)
    data.write_text(f'{head[:-2]},\n "rows": [\n{body}\n ]\n}}\n', encoding="utf-8")
    try:
        plots = list(experiment.plots(rows, directory))
    except PlotsMissing as error:
        _log.warning("no plots: %s", error)
        plots = []
    pictures = "\n\n".join(f"![{plot.stem}]({plot.name})" for plot in plots)
    results = f"{experiment.tables(rows).strip()}\n\n{pictures}".strip()
    page = base.with_suffix(".md")
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    text = with_tables(old, results) if BEGIN in old else _fresh(experiment, rows, results, command)
    page.write_text(text, encoding="utf-8")
    return [data, page, *plots]


def _fresh(experiment: Experiment, rows: Sequence[ResultRow], results: str, command: str) -> str:
    parts = [
        f"# {experiment.title}",
        experiment.question.strip(),
        _section("Setting", experiment.about),
        _section("Results", results),
        _section("What it shows", experiment.findings(rows)),
        _section("Limits", experiment.limits),
        _section(
            "Reproduce",
            f"```\n{command}\n```\n\nmakes this page; the rows are in"
            f" [{experiment.name}.json]({experiment.name}.json).",
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text.strip()}" if text.strip() else ""
