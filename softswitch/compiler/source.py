"""Source text: files, quoted strings, and the places in them that every pass names in its errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source file; `line` and `column` count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Position("", 0, 0)
"""Of what the compiler makes itself."""


def read_source(path: str | Path) -> str:
    """Return the text of a file. Raises OSError."""
    return Path(path).read_text(encoding="utf-8-sig", errors="replace")


def unescape(quoted: str) -> str:
    """Return the value of a string in quotes."""
    return re.sub(r'\\(["\\])', r"\1", quoted.strip()[1:-1])
