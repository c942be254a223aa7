"""History of aggregator slots: which sum held a slot, when, why it ended, and packets that found it taken.

The history is computed from the switches' reports on arriving packets (`Event.outcome`, `Event.slot`). A
slot is *held* while it has part of a sum. A slot that keeps a complete sum, to answer late requests, counts
as free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bmv2_topos.trace.events import Event
from hostlib import wire

_ENDS = {
    "completed": "completed",
    "flushed": "sent up with a resent packet",
    "pulled": "sent up after a reminder by the fallback server",
    "stored": "result from above",
}
_TAKES = {"preempted": "evicted by a higher priority", "reclaimed": "evicted because it was too old"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A packet that found its slot taken."""

    time_ns: int
    job: int
    psn: int


@dataclass(slots=True)
class Tenure:
    """A period in which a sum held a slot. `until_ns` None: until the end of the capture."""

    switch: str
    slot: int
    job: int
    psn: int
    from_ns: int
    contributions: int = 1
    until_ns: int | None = None
    ended: str = "still held"
    evicted_by: Attempt | None = None
    attempts: list[Attempt] = field(default_factory=list)
    """Packets of other sums that found the slot taken in this period."""


def tenures(events: Iterable[Event]) -> list[Tenure]:
    """Return the tenures of all slots, in the order of their starts; `events` must be in order of time."""
    found: list[Tenure] = []
    held: dict[tuple[str, int], Tenure] = {}
    for event in events:
        if event.inbound and event.outcome is not None and event.slot is not None and not event.fate:
            began = _step(held, event)
            if began is not None:
                found.append(began)
    return found


def _step(held: dict[tuple[str, int], Tenure], event: Event) -> Tenure | None:
    """Update `held`, who holds which slot, for a packet's event; return the `Tenure` that begins, if any."""
    assert event.slot is not None
    place = event.place, event.slot
    holder = held.get(place)
    mine = holder if holder and (holder.job, holder.psn) == (event.job, event.psn) else None
    attempt = Attempt(event.time_ns, event.job, event.psn)
    outcome = event.outcome
    if outcome == "collided" and holder is not None:
        holder.attempts.append(attempt)
    elif outcome == "aggregated" and mine:
        mine.contributions += 1
    elif outcome in ("aggregated", *_TAKES):
        if holder is not None:
            holder.evicted_by = attempt if outcome in _TAKES else None
            _end(held, place, event, _TAKES.get(outcome, "abandoned, so that the slot was free"))
        held[place] = Tenure(event.place, event.slot, event.job, event.psn, event.time_ns)
        return held[place]
    elif outcome in _ENDS and mine:
        mine.contributions += outcome == "completed"
        _end(held, place, event, _ENDS[outcome])
    elif event.kind == wire.KIND_RESULT and outcome == "passed_down" and mine:
        _end(held, place, event, "result passed down")
    return None


def _end(held: dict[tuple[str, int], Tenure], place: tuple[str, int], event: Event, how: str) -> None:
    tenure = held.pop(place)
    tenure.until_ns, tenure.ended = event.time_ns, how
