"""Count the path of each collective of a framework: through the switch, or around it.

A front end (`hostlib.torch`) records every call here. The first call of a kind that goes around the switch is
logged (logger ``hostlib.paths``); all other calls are logged at level DEBUG.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Final

SWITCH: Final = "switch"
_log = logging.getLogger("hostlib.paths")
_logged: set[tuple[int, str, str, str]] = set()
"""Logged paths of calls: level, call, path, reason. Each is logged once per process, not once per group."""


class CallPaths:
    """The counters of one process group; any thread may call."""

    def __init__(self, *, level: int = logging.WARNING) -> None:
        """Count no calls yet.

        Args:
            level: The logging level for calls that another library has carried out though the switch could.
                Calls that the switch could not have carried out are logged at level INFO.
        """
        self._level = level
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def took(self, call: str, path: str, reason: str = "", *, loud: bool = False) -> None:
        """Record the path of a call.

        Args:
            call: The call, such as "allreduce max float32".
            path: The path that it takes.
            reason: Why the call does not go through the switch; "": it does.
            loud: Whether the switch could have carried out the call.
        """
        with self._lock:
            self._counts[call, path] += 1
        level = self._level if loud else logging.INFO
        what = level, call, path, reason
        if path == SWITCH or what in _logged:
            _log.debug("%s goes through %s", call, path)
        else:
            _logged.add(what)
            self.note(*what)

    @staticmethod
    def note(level: int, what: str, path: str, reason: str) -> None:
        """Log that calls go around the switch.

        Args:
            level: Level of `logging`.
            what: The calls.
            path: The path that they take.
            reason: Why they take it.
        """
        _log.log(level, "%s goes through %s, not the switch%s", what, path, reason and f": {reason}")

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of calls by kind and path."""
        with self._lock:
            counts: dict[str, dict[str, int]] = {}
            for (call, path), number in sorted(self._counts.items()):
                counts.setdefault(call, {})[path] = number
            return counts

    def total(self, path: str) -> int:
        """Return the number of calls that took a path."""
        with self._lock:
            return sum(number for (_, taken), number in self._counts.items() if taken == path)
