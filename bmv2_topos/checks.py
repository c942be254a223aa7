"""What files that people write have in common: checks of single values, unknown keys, reading the text."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

MAX_CHARACTERS = 1 << 24
MAX_SHOWN = 20
"""Words that an error lists."""

Check = Callable[[object], str | None]
"""Returns the description of a valid value; None: the value is valid."""


def whole(least: int, most: int) -> Check:
    """Return the check for a whole number of a range."""

    def check(value: object) -> str | None:
        good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return None if good else f"want a whole number, {least} to {most}"

    return check


def seconds(value: object) -> str | None:
    """Check a time in seconds."""
    return None if _number(value, math.inf) else "want seconds, 0 or more"


def bits_per_second(value: object) -> str | None:
    """Check a rate."""
    return None if _number(value, math.inf) else "want bits per second, 0 (unlimited) or more"


def fraction(value: object) -> str | None:
    """Check a part of a whole that is not all of it."""
    return None if _number(value, 1) else "want a fraction, 0 to below 1"


def chance(value: object) -> str | None:
    """Check a probability."""
    return None if _number(value, math.nextafter(1, 2)) else "want a probability, 0 to 1"


def flag(value: object) -> str | None:
    """Check a truth value."""
    return None if isinstance(value, bool) else "want true or false"


def one_of(choices: Collection[str]) -> Check:
    """Return the check for one of a few words."""
    return lambda value: None if value in choices else f"want one of {', '.join(map(repr, choices))}"


def label(value: object) -> str | None:
    """Check a name."""
    good = isinstance(value, str) and value.strip() == value and value.isprintable() and value
    return None if good else "want a name in quotes"


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """Say that a word is none of those that are known, and which one may be meant.

    >>> unknown("key", "rot", ["root", "name"])
    "unknown key 'rot'; did you mean 'root'?"
    """
    known = list(known)
    close = difflib.get_close_matches(given, known, n=1)
    more = f" and {len(known) - MAX_SHOWN:,} more" if len(known) > MAX_SHOWN else ""
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known[:MAX_SHOWN])}{more}"
    return f"unknown {what} {given!r}; {hint}"


def read_text(path: str | Path, error: type[ValueError], kind: str) -> str:
    """Return the text of a file; raise `error`, naming the file, for one that cannot be a `kind`."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:  # editors on Windows begin with a mark
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as caught:
        why = caught.strerror if isinstance(caught, OSError) else caught
        raise error(f"{path}: cannot be read: {why}") from caught
    if len(text) > MAX_CHARACTERS:
        raise error(f"{path}: longer than {MAX_CHARACTERS} characters, which no {kind} is")
    return text


def _number(value: object, below: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < below
