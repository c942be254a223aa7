"""Source files and strings as text, for those who need neither preprocessor nor lexer."""

from __future__ import annotations

import re
from pathlib import Path


def read_source(path: str | Path) -> str:
    """Return the text of a file. Raises OSError."""
    return Path(path).read_text(encoding="utf-8-sig", errors="replace")


def unescape(quoted: str) -> str:
    """Return the value of a string in quotes."""
    return re.sub(r'\\(["\\])', r"\1", quoted.strip()[1:-1])
