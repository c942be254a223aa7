"""Points between the steps of effects at which a test can kill the daemon."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

POINTS = (
    *("recorded", "synced", "kept", "one admitted", "admitted"),
    *("fallback told", "served", "ordered", "started", "granted"),
    *("reconciled", "forwards", "frozen"),
    *("stopped", "one removed", "removed", "let go", "forgotten"),
    *("stray stopped", "stray forgotten", "log removed", "asked to end"),
)
"""All points, in the order of a job's life: one after each call with an outside effect."""
VARIABLE = "INA_SERVICE_DIE_AT"
"""``POINT:N``: the process kills itself at the Nth time at this point."""

_left = dict[str, int]()
if text := os.environ.get(VARIABLE):
    point, _, times = text.rpartition(":")
    if point not in POINTS:
        raise ValueError(f"{VARIABLE}={text!r}: want POINT:N, with one of {', '.join(POINTS)}")
    _left[point] = int(times)


hook: Callable[[str], None] | None = None
"""Called with the name of each point; a test in virtual time sets it."""


def fault_point(name: str) -> None:
    """Do nothing, or kill the process here for a test."""
    if hook is not None:
        hook(name)
    if _left and name in _left:
        _left[name] -= 1
        if _left[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
