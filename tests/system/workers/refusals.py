"""Notes what calls raise, for scenarios that go on after it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def noting(found: dict[str, Any]) -> Callable[[str, Callable[[], Any]], None]:
    """Return what makes a call and notes below a name what it raised, type and text; None: nothing."""
    return functools.partial(_note, found)


def _note(found: dict[str, Any], name: str, call: Callable[[], Any]) -> None:
    try:
        call()
        found[name] = None
    except Exception as error:
        found[name] = [type(error).__name__, str(error)]
