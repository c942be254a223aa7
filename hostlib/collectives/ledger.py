"""Comparison of the ranks' calls: which rank waits for which call, and where the ranks differ.

A call that not all ranks make the same way never ends. Packets tell that, but only of calls that went through
the switch on all ranks; so ranks that wait long show each other their latest calls. Pure data: how the
ledgers travel is the caller's business.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

KEPT: Final = 64
"""Latest calls of a rank that are remembered."""


@dataclass(frozen=True, slots=True)
class Page:
    """The latest calls of a rank, as it shows them to others."""

    first: int
    """Number of the first of them."""
    calls: Sequence[str]
    """Descriptions of all that ranks must agree on, in order."""

    @property
    def last(self) -> int:
        """The number of the last call; -1 before any."""
        return self.first + len(self.calls) - 1

    def call(self, number: int) -> str | None:
        """Return a call's description; None if it is not on the page."""
        place = number - self.first
        return self.calls[place] if 0 <= place < len(self.calls) else None

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        return json.dumps({"first": self.first, "calls": list(self.calls)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a page. Raises ValueError, KeyError or TypeError for what is none."""
        fields = json.loads(text)
        return cls(int(fields["first"]), [str(call) for call in fields["calls"]])


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that has not ended: its number, what it is, and for how long it has been waited for."""

    number: int
    call: str
    waited_s: float


class Ledger:
    """The calls of this rank; one thread at a time."""

    def __init__(self) -> None:
        self._calls: deque[str] = deque(maxlen=KEPT)
        self._next = 0
        self._open: dict[int, tuple[str, float]] = {}

    def begin(self, call: str) -> int:
        """Note that a call begins; return its number."""
        number, self._next = self._next, self._next + 1
        self._calls.append(call)
        self._open[number] = call, time.monotonic()
        return number

    def end(self, number: int) -> None:
        """Note that a call has ended, however it did. Without effect if noted before."""
        self._open.pop(number, None)

    def oldest(self) -> Waiting | None:
        """Return the earliest call that has not ended; None if all have."""
        number = min(self._open, default=None)
        if number is None:
            return None
        call, began = self._open[number]
        return Waiting(number, call, time.monotonic() - began)

    def page(self) -> Page:
        """Return the latest calls."""
        return Page(self._next - len(self._calls), tuple(self._calls))


def disagreement(pages: Mapping[int, Page]) -> str | None:
    """Say how ranks differ in the first call that they made differently; None if they do not.

    Only calls that at least two of the pages hold are compared.
    """
    first = min((page.first for page in pages.values()), default=0)
    last = max((page.last for page in pages.values()), default=-1)
    for number in range(first, last + 1):
        made = {rank: call for rank, page in sorted(pages.items()) if (call := page.call(number)) is not None}
        if len(set(made.values())) > 1:
            return f"call {number} is {_by_call(made)}"
    return None


def behind(pages: Mapping[int, Page], number: int) -> dict[int, str]:
    """Return the ranks that have not made call `number`, each with what it called last."""
    return {
        rank: page.calls[-1] if page.calls else "nothing"
        for rank, page in sorted(pages.items())
        if page.last < number
    }


def _by_call(made: Mapping[int, str]) -> str:
    ranks: dict[str, list[int]] = {}
    for rank, call in made.items():
        ranks.setdefault(call, []).append(rank)
    return ", but ".join(
        f"{call} at rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}"
        for call, who in ranks.items()
    )
