"""How many random cases a property is tried on: a third in each run of the tests, all with ``--thorough``.

Whatever a case once found stands beside it as an example, and is tried in each run.
"""

from __future__ import annotations

THOROUGH = False
"""Set by `tests.conftest` before the tests are read."""


def cases(number: int) -> int:
    """Return how many of `number` cases this run tries."""
    return number if THOROUGH else -(-number // 3)
