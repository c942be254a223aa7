"""Answers that many want at once, as pages in browsers do: worked out once for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

from starlette.requests import Request

from ina.service.api.asking import Json
from ina.service.daemon import Daemon
from ina.service.tokens import Person

FRESH_S = 1.0
"""For which an answer may be given again: progress and estimates go on without an event."""
MOST = 16
"""Answers that are kept."""


class _Answer(NamedTuple):
    changes: Hashable
    at_s: float
    body: bytes


class Shared:
    """Keeps answers for as long as nothing has changed, and no longer than a moment."""

    def __init__(self, service: Daemon, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock_s = clock_s
        self._answers: dict[tuple[Person, str, str], _Answer] = {}

    def answer(self, request: Request, person: Person, make: Callable[[], object]) -> Json:
        """Answer with what `make` returns, or has just returned for the same request of the same person."""
        key = person, request.url.path, request.url.query
        changes, now_s = self._service.changes, self._clock_s()
        known = self._answers.get(key)
        if known is not None and known.changes == changes and now_s - known.at_s < FRESH_S:
            return Json(known.body)
        made = Json(make())
        fresh = {k: each for k, each in self._answers.items() if now_s - each.at_s < FRESH_S and k != key}
        self._answers = (
            {**fresh, key: _Answer(changes, now_s, bytes(made.body))} if len(fresh) < MOST else fresh
        )
        return made
