"""``python -m benchmarks.pages NAME… [OPTION…]``: ``ina experiment`` for pages by name.

``list`` lists them, ``all`` stands for all of them. Options are as for ``ina experiment``; without
--output, --check compares with the published rows, in docs/results.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from itertools import takewhile

from benchmarks.pages import QUESTIONS, RESULTS, source
from ina.cli import main

LIST, ALL = "list", "all"


def arguments(given: Sequence[str]) -> list[str]:
    """Return the arguments of ``ina`` for these. Raises SystemExit for an unknown page."""
    names = list(takewhile(lambda argument: not argument.startswith("-"), given))
    options = list(given[len(names) :])
    if "--check" in options and "--output" not in options:
        options += ["--output", str(RESULTS)]
    return ["experiment", *map(_known, QUESTIONS if names == [ALL] else names), *options]


def listing() -> str:
    """Return the pages and their questions, one a line."""
    return "\n".join(f"  {name:<18} {asks}" for name, asks in QUESTIONS.items())


def _known(name: str) -> str:
    if name in QUESTIONS:
        return source(name)
    close = difflib.get_close_matches(name, QUESTIONS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(QUESTIONS)}"
    raise SystemExit(f"there is no page {name!r}; {hint}")


if __name__ == "__main__":
    if sys.argv[1:] == [LIST]:
        print(listing())
    else:
        sys.argv[1:] = arguments(sys.argv[1:])
        main()
