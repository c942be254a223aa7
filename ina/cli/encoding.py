"""Replacements for characters that an output's encoding lacks.

Python's own handlers end the command ("strict") or print escapes. Here ``µs`` becomes ``us`` and an arrow
``->``, for all writers: the standard streams themselves replace.
"""

from __future__ import annotations

import codecs
import sys
import unicodedata
from io import TextIOWrapper
from typing import Final

_NAME: Final = "ina.fallback"
_INSTEAD: Final = str.maketrans(
    {
        **{"→": "->", "←": "<-", "↑": "^", "↓": "v", "×": "x", "÷": "/", "·": ".", "•": "*", "°": " deg"},
        **{"–": "-", "—": "-", "−": "-", "…": "...", "≤": "<=", "≥": ">=", "≈": "~", "±": "+-", "∞": "inf"},
        **{
            "‘": "'",
            "’": "'",
            "“": '"',
            "”": '"',
            "«": '"',
            "»": '"',
            "µ": "u",
            "μ": "u",
            "✓": "ok",
            "✗": "x",
        },
        **dict.fromkeys("─━═╌┄", "-"),
        **dict.fromkeys("│┃║", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋┡┩╇╭╮╰╯", "+"),
        **dict.fromkeys("█▉▊▋▌▍▎▏▇▆▅▄▃▂▁■▪●", "#"),
        **dict.fromkeys("░▒▓□○", "."),
    }
)


def instead(text: str) -> str:
    r"""Return ASCII text for characters that an encoding lacks: the nearest letters or signs, else an escape.

    >>> instead("20 µs → é 数")
    '20 us -> e \\u6570'
    """
    parts = unicodedata.normalize("NFKD", text).translate(_INSTEAD)
    letters = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return letters.encode("ascii", "backslashreplace").decode("ascii")


def visible(text: str) -> str:
    r"""Return text without characters that move the cursor, set colours or reverse the line: escapes instead.

    Line ends and tabs stay.

    >>> visible("job \x1b[31mred\n")
    'job \\x1b[31mred\n'
    """
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cf")
        else letter
        for letter in text
    )


def install() -> None:
    """Make both standard streams replace characters that their encodings lack, by `instead`."""
    codecs.register_error(_NAME, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return instead(error.object[error.start : error.end]), error.end
