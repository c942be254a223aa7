"""Trace files of the published schedulers and of our own, as jobs.

A file is read completely, or raises BadTrace with file, line and column. Jobs must be in order of
submission, with unique names, and positive durations and GPU counts.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from controller.scheduling.errors import BadTrace
from controller.scheduling.model import Submission
from controller.simulator.traces import described, gavel, helios, muri, neutral, philly, synergy, tiresias
from controller.simulator.traces.rows import JobCheck, brief, read_text
from controller.vocabulary import Cluster, documents

Reader = Callable[[Path, Cluster | None, JobCheck | None], list[Submission]]

READERS: dict[str, Reader] = {
    "muri": muri.read,
    "csv": neutral.read,
    "toml": described.read,
    "tiresias": tiresias.read,
    "philly": philly.read,
    "helios": helios.read,
    "gavel": gavel.read,
    "synergy": synergy.read,
}
"""Formats by name."""

HEADERS = {
    "muri": muri.COLUMNS,
    "csv": neutral.COLUMNS,
    "tiresias": tiresias.COLUMNS,
    "philly": philly.COLUMNS,
    "helios": helios.COLUMNS,
}
"""The columns that tell a format."""


def read(
    path: Path, cluster: Cluster | None = None, known: JobCheck | None = None, *, format: str = ""
) -> list[Submission]:
    """Return the jobs of a trace file.

    Args:
        path: The file.
        cluster: If given, a job larger than this is an error.
        known: If given, raises for a job whose speed is unknown.
        format: Name of the format; "": detected from the file's name or first line.

    Raises BadTrace.
    """
    name = format or _detect(path)
    if name not in READERS:
        raise BadTrace(
            str(path), 0, "", f"format {brief(repr(name))} is unknown; known are {', '.join(READERS)}"
        )
    return READERS[name](path, cluster, known)


def _detect(path: Path) -> str:
    if path.suffix in documents.FORMATS:
        return "toml"
    lines = enumerate(read_text(path).split("\n"), 1)
    line, first = next(((number, text) for number, text in lines if text.strip(" ,")), (1, ""))
    if first.count("\t") == len(gavel.COLUMNS) - 1:
        return "gavel"
    try:
        columns = [cell.strip() for cell in next(csv.reader([first]), [])]
    except csv.Error as error:
        raise BadTrace(str(path), line, "", str(error)) from error
    if not columns:
        raise BadTrace(str(path), 1, "", "empty; its first line tells the format, or --format does")
    if len(columns) == len(synergy.COLUMNS) and columns[0].isdigit():
        return "synergy"
    if {"application", "num_replicas"} <= {*columns}:
        raise BadTrace(str(path), line, "", "a Pollux workload: it does not say how much work its jobs have")

    def likeness(name: str) -> tuple[int, bool]:
        old = neutral.OLD if name == "csv" else {}
        there = {*HEADERS[name]} & {old.get(column, column) for column in columns}
        return len(there), len(there) == len(HEADERS[name])

    # a trace of Muri that lacks a column of Muri's is not one of Tiresias, though it has all of theirs
    nearest = max(HEADERS, key=likeness)
    if likeness(nearest)[0] == 0:
        known = ", ".join(READERS)
        raise BadTrace(str(path), line, "", f"unknown columns; name the format with --format, one of {known}")
    if nearest == "csv":
        return nearest  # its reader knows what columns were called, too
    if missing := [column for column in HEADERS[nearest] if column not in columns]:
        raise BadTrace(str(path), line, missing[0], f"missing; the format seems to be {nearest!r}")
    return nearest
