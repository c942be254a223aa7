"""Errors of the compiler, and their positions in source text.

::

    CompileError          the source is wrong
    └── Unsupported       the source is right, but this compiler does not support it (yet)

Both state the place, the problem and, if helpful, a correction. A compilation raises its first error;
`CompileError.others` holds the errors found after the first one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
"""Position of text that the compiler generates itself."""


def read_source(path: str | Path) -> str:
    """Return the text of a file. Raises OSError."""
    return Path(path).read_text(encoding="utf-8-sig", errors="replace")


def unescape(quoted: str) -> str:
    """Return the value of a quoted string: without quotes, with escape sequences resolved."""
    return re.sub(r'\\(["\\])', r"\1", quoted.strip()[1:-1])


_TAB_WIDTH = 8
MAX_SHOWN = 20
"""Maximum number of errors of one compilation that `CompileError.render` shows."""
_MAX_WIDTH = 200
"""Maximum number of characters of a source line in a message; generated programs have longer lines."""


def _source_line(pos: Position, sources: Mapping[str, str]) -> str | None:
    """Return the source line that contains `pos`.

    Return None if the file cannot be read or has no such line.
    """
    try:
        text = sources.get(pos.file) or Path(pos.file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = text.split("\n")
    return lines[pos.line - 1] if 0 < pos.line <= len(lines) else None


def _around(line: str, column: int) -> tuple[str, int]:
    """Return up to `_MAX_WIDTH` characters of `line` around `column` (from 0).

    Also return the index of the column in these characters.
    """
    first = max(0, min(column - _MAX_WIDTH // 2, len(line) - _MAX_WIDTH))
    before, after = "…" if first else "", "…" if len(line) > first + _MAX_WIDTH else ""
    return f"{before}{line[first : first + _MAX_WIDTH]}{after}", column - first + len(before)


class CompileError(Exception):
    """The source is wrong at `pos`; `expected` states the right form."""

    exit_code = 3

    kind = "error"

    def __init__(self, message: str, pos: Position, expected: str | None = None) -> None:
        super().__init__(message, pos, expected)
        self.message = message
        self.pos = pos
        self.expected = expected
        self.others: tuple[CompileError, ...] = ()

    def __str__(self) -> str:
        where = f"{self.pos}: " if self.pos.file else ""  # an error about several places has no position
        return f"{where}{self.kind}: {self.message}"

    def render(self, sources: Mapping[str, str] | None = None) -> str:
        """Return the message with the source line, a caret under the column, and the expected form.

        Further errors follow, up to `MAX_SHOWN` in all. `sources` maps file names to their text; other files
        are read from disk. If the line is not available, the message stands alone.
        """
        shown = [self, *self.others[: MAX_SHOWN - 1]]
        text = [error._render(sources or {}) for error in shown]
        if len(self.others) >= MAX_SHOWN:
            more = len(self.others) - MAX_SHOWN + 1
            text.append(f"and {more} more error{'s' if more > 1 else ''}")
        return "\n".join(text)

    def _render(self, sources: Mapping[str, str]) -> str:
        text = [str(self)]
        line = _source_line(self.pos, sources)
        if line is not None:
            indent = len(line[: self.pos.column - 1].expandtabs(_TAB_WIDTH))
            shown, indent = _around(line.expandtabs(_TAB_WIDTH).rstrip(), indent)
            text += [f"  {shown}", f"  {' ' * indent}^"]
        if self.expected is not None:
            text.append(f"  expected: {self.expected}")
        return "\n".join(text)


class Unsupported(CompileError):
    """The source is valid P4_16, but this compiler does not support it (yet)."""

    kind = "unsupported"


def gathered(errors: Sequence[CompileError]) -> CompileError:
    """Return the first error; its `others` holds all further errors, without duplicates."""
    unique: dict[tuple[str, Position], CompileError] = {}
    for error in errors:
        for one in (error, *error.others):
            unique.setdefault((one.message, one.pos), one)
    first, *others = unique.values()
    first.others = tuple(others)
    return first
