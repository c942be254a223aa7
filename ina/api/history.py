"""Data that the service keeps in memory for clients: which jobs held which slots, and recent answers."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

from starlette.requests import Request

from ina.api.access import Json
from ina.run.daemon import Daemon
from ina.run.tokens import Person
from ina.run.views import MemoryView, MomentView, hidden

MOST = 100_000
"""Maximum number of entries in `History`, over all switches. An entry is one job's slots at one time; the
oldest entries are removed."""
EVERY_S = 1.0
"""Minimum interval, in s, between two records of the history."""


class History:
    """Records which jobs held which slots of each switch, with the time of each change."""

    def __init__(self, service: Daemon, most: int = MOST) -> None:
        self._service = service
        self._most = most
        self._moments: dict[str, deque[MomentView]] = {}
        self._size = 0
        self._since_s = service.ledger.now_s

    def sample(self) -> None:
        """Record which jobs hold which slots of each switch, if that has changed since the last record."""
        now_s = self._service.ledger.now_s
        for switch in self._service.reports.switches():
            moments = self._moments.setdefault(switch["name"], deque())
            shares = switch["shares"]
            if not moments or moments[-1]["shares"] != shares:
                moments.append({"at_s": now_s, "shares": shares})
                self._size += 1 + len(shares)
        while (
            self._size > self._most and (longest := max(self._moments.values(), key=len)) and len(longest) > 1
        ):
            self._size -= 1 + len(longest.popleft()["shares"])
            self._since_s = max(self._since_s, longest[0]["at_s"])

    async def follow(self) -> None:
        """Record changes after each decision of the service, until cancelled."""
        after = 0
        while True:
            self.sample()
            for decision in self._service.reports.decisions(after):
                after = decision.number
            async for _ in self._service.watch(after):
                break  # something has happened
            await asyncio.sleep(EVERY_S)

    def view(self, person: Person) -> MemoryView:
        """Return the history, without the names of jobs that the person may not see."""
        self.sample()
        own = {each.name for each in self._service.reports.records() if person.owns(each.tenant)}
        return {
            "now_s": self._service.ledger.now_s,
            "since_s": self._since_s,
            "slots": {switch["name"]: switch["slots"] for switch in self._service.reports.switches()},
            "switches": {
                name: [
                    {
                        "at_s": each["at_s"],
                        "shares": each["shares"] if person.operates else hidden(each["shares"], own),
                    }
                    for each in moments
                ]
                for name, moments in self._moments.items()
            },
        }


FRESH_S = 1.0
"""Maximum age, in s, of an answer that is repeated. Even without an event an answer becomes outdated, because
jobs' progress and estimates change."""
MOST_KEPT = 16
"""Number of answers kept."""


class _KeptAnswer(NamedTuple):
    changes: Hashable
    at_s: float
    body: bytes


class Shared:
    """Stores recent answers, and repeats them for the same requests.

    An answer is repeated until the service's state changes, and no longer than `FRESH_S`.
    """

    def __init__(self, service: Daemon, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock_s = clock_s
        self._answers: dict[tuple[Person, str, str], _KeptAnswer] = {}

    def answer(self, request: Request, person: Person, make: Callable[[], object]) -> Json:
        """Return a recent answer to the same request of the same person, or else the result of `make`."""
        key = person, request.url.path, request.url.query
        changes, now_s = self._service.changes, self._clock_s()
        known = self._answers.get(key)
        if known is not None and known.changes == changes and now_s - known.at_s < FRESH_S:
            return Json(known.body)
        made = Json(make())
        fresh = {k: each for k, each in self._answers.items() if now_s - each.at_s < FRESH_S and k != key}
        self._answers = (
            {**fresh, key: _KeptAnswer(changes, now_s, bytes(made.body))} if len(fresh) < MOST_KEPT else fresh
        )
        return made
