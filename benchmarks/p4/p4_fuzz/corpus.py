"""The programs that cases are made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
SIZES = {"LANES": "32", "SLOTS": "64"}
"""Definitions that make our own programs small."""
REFUSED = "no program"
"""The outcome of a case whose program does not compile."""


def program_files(folder: Path | None) -> Sequence[Path]:
    """Return all programs below a folder: without one, those of the tests and our own."""
    if folder is not None:
        return sorted(folder.rglob("*.p4"))
    return [*sorted((ROOT / "tests").rglob("*.p4")), *sorted((ROOT / "p4src").glob("*.p4"))]
