"""How much of what could be tried each run of the tests tries: a share, and all with ``--thorough``.

Whatever a random case once found stands beside its property as an example, and is tried in each run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")

THOROUGH = False
"""Set by `tests.conftest` before the tests are read."""


def cases(number: int, *, at_least: int = 1) -> int:
    """Return how many of `number` random cases this run tries: a sixth, `at_least` so many."""
    return number if THOROUGH else max(-(-number // 6), at_least)


def some(items: Iterable[T], *, every: int) -> list[T]:
    """Return which of many `items` of one kind this run tries: the first, and one of `every` after it."""
    return list(items) if THOROUGH else list(items)[::every]


def if_thorough() -> pytest.MarkDecorator:
    """Mark a test that repeats at length what a shorter one of each run tries."""
    return pytest.mark.skipif(not THOROUGH, reason="long: with --thorough only")
