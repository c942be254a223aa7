"""Points where a test can kill the controller's service, each after a step with an outside effect."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

POINTS = (
    *("recorded", "synced", "kept", "one admitted", "admitted"),
    *("fallback told", "served", "ordered", "started", "granted"),
    *("reconciled", "forwards", "frozen"),
    *("stopped", "one removed", "removed", "hold removed", "forgotten"),
    *("stray stopped", "stray forgotten", "log removed", "asked to end"),
)
"""Names of all points, in the order of a job's life. Each point follows a call with an outside effect."""
VARIABLE = "INA_SERVICE_DIE_AT"
"""Environment variable with ``POINT:N``: the process kills itself when it reaches POINT for the Nth time."""

_left = dict[str, int]()
if text := os.environ.get(VARIABLE):
    point, _, times = text.rpartition(":")
    if point not in POINTS:
        raise ValueError(f"{VARIABLE}={text!r}: want POINT:N, with one of {', '.join(POINTS)}")
    _left[point] = int(times)


hook: Callable[[str], None] | None = None
"""Function that is called with the name of each point that is reached; set by tests in virtual time."""


def fault_point(name: str) -> None:
    """Mark a point; kill the process here if a test asks for it by `VARIABLE`."""
    if hook is not None:
        hook(name)
    if _left and name in _left:
        _left[name] -= 1
        if _left[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
