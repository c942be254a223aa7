"""What files that people write have in common: checks of single values, unknown keys, reading the text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from controller.vocabulary.documents import Check, flag, hint, one_of
from controller.vocabulary.documents import name as label

__all__ = [
    "Check",
    "bits_per_second",
    "chance",
    "flag",
    "fraction",
    "label",
    "one_of",
    "read_text",
    "seconds",
    "unknown",
    "whole",
]

MAX_CHARACTERS = 1 << 24


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


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """Say that a word is none of those that are known, and which one may be meant.

    >>> unknown("key", "rot", ["root", "name"])
    "unknown key 'rot'; did you mean 'root'?"
    """
    return f"unknown {what} {given!r}; {hint(given, list(known))}"


def read_text(path: str | Path, error: type[Exception], kind: str) -> str:
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
