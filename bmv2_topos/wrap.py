"""Wraps the prose of a Markdown page to an even width, and leaves all else as it is.

``python -m bmv2_topos.wrap FILE…`` wraps pages in place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

WIDTH: Final = 110

_ITEM: Final = re.compile(r"( *)([-*+]|\d+\.) +")
_VERBATIM: Final = re.compile(r"\||#|<|!\[| {4,}\S")
"""Beginnings of lines that are not prose: tables, headings, comments, pictures, indented code."""
_STRUCTURAL: Final = re.compile(r"(?:[-*+=]+|#+|\d+[.)])$|>|\||<!--")
"""Words that would mean something else at the beginning of a line."""
_WORD: Final = re.compile(r"(?:`[^`\n]{1,60}`|\S)+")
"""A word, or short code with its blanks."""


def wrap(page: str, width: int = WIDTH) -> str:
    """Return `page` with its paragraphs and list items filled to `width` columns.

    Words and code spans of up to 60 characters stay whole. What is wrapped already does not change.
    """
    result: list[str] = []
    prose: list[str] = []
    in_code = False

    def flush() -> None:
        if prose:
            result.extend(_fill(prose, width))
            prose.clear()

    for line in page.split("\n"):
        fence = line.lstrip().startswith("```")
        if fence or in_code or not line.strip():
            flush()
            result.append(line)
            in_code ^= fence
        elif _VERBATIM.match(line) and not (prose and line[0] == " "):
            flush()
            result.append(line)
        else:
            if _ITEM.match(line):
                flush()
            prose.append(line)
    flush()
    return "\n".join(result)


def _fill(lines: list[str], width: int) -> list[str]:
    """Return a paragraph, or an item of a list, in lines that are as full as can be."""
    item = _ITEM.match(lines[0])
    first = item[0] if item else ""
    indent = " " * len(first)
    words = _WORD.findall(" ".join([lines[0].removeprefix(first), *map(str.strip, lines[1:])]))
    filled = [[words[0]]]
    for word in words[1:]:
        line = filled[-1]
        if len(indent) + len(" ".join([*line, word])) <= width:
            line.append(word)
        elif not _STRUCTURAL.match(word):
            filled.append([word])
        elif len(line) > 1 and not _STRUCTURAL.match(line[-1]):
            filled.append([line.pop(), word])
        else:
            line.append(word)
    head, *others = map(" ".join, filled)
    return [first + head, *(indent + line for line in others)]


def main(files: Sequence[str]) -> None:
    """Wrap files in place."""
    for file in map(Path, files):
        file.write_text(wrap(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
