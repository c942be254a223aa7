"""The history of one PSN across hosts and switches, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bmv2_topos.trace.events import Event
from hostlib import wire

_OUTCOMES = {
    "aggregated": "added to slot {slot}",
    "completed": "completed the sum in slot {slot}",
    "replayed": "answered with the result in slot {slot}",
    "duplicate": "counted already: dropped",
    "status": "counted already: a status was sent back",
    "stale": "older than the sum in slot {slot}: dropped",
    "collided": "slot {slot} is taken: passed on to the fallback server",
    "bypassed": "passed on to the fallback server, without a slot",
    "preempted": "took slot {slot} from a sum of lower priority",
    "reclaimed": "took slot {slot} from a sum that was too old",
    "flushed": "carried the partial sum of slot {slot} up",
    "pulled": "reminder: the partial sum in slot {slot} was sent up",
    "relayed": "complete here: sum sent up again",
    "stored": "result kept in slot {slot}, passed down",
    "passed_up": "passed up",
    "passed_down": "passed down",
}
_FATES = {
    "lost": "LOST on the link",
    "corrupted": "LOST: damaged on the link",
    "queue_full": "LOST: the queue was full",
    "blocked": "LOST: the socket did not accept it",
    "no_program": "LOST: no program was loaded",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a timeline."""

    event: Event
    what: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The history of a PSN. `missing` lists, as texts, the facts that the captures do not show."""

    job: int
    psn: int
    steps: tuple[Step, ...]
    missing: tuple[str, ...]


def timeline(events: Iterable[Event], job: int, psn: int) -> Timeline:
    """Return the history of a job's PSN; it has no steps if the captures have no packet of the PSN."""
    seen = [event for event in events if (event.job, event.psn) == (job, psn)]
    steps = tuple(Step(event, describe(event)) for event in seen)
    return Timeline(job, psn, steps, tuple(_missing(seen)))


def describe(event: Event) -> str:
    """Return a line of text that describes the event."""
    flags = f" ({'+'.join(event.flag_names)})" if event.flags else ""
    packet = f"{event.kind_name}{flags} of {_contributors(event)}"
    if event.fate:
        return f"{packet}: {_FATES.get(event.fate, event.fate)}"
    if event.inbound and event.outcome is not None:
        outcome = _OUTCOMES.get(event.outcome, f"refused: {event.outcome}")
        return f"{packet}: {outcome.format(slot=event.slot)}"
    waited = f", after {event.waited_ns / 1000:g} µs in the queue" if event.waited_ns else ""
    match event.inbound, event.port:
        case True, None:
            return f"{packet}: {'delivered' if event.kind == wire.KIND_RESULT else 'arrived'}"
        case True, _:
            return f"{packet}: came in"
        case False, None:
            return f"{packet}: {'sent again' if event.resent else 'sent'}"
        case False, _:
            return f"{packet}: left{waited}"
        case _:
            return f"{packet}: seen"


def _contributors(event: Event) -> str:
    children = [str(bit) for bit in range(wire.MAX_FAN_IN) if event.bitmap >> bit & 1]
    if event.kind in (wire.KIND_GRADIENT, wire.KIND_PARTIAL) and children:
        return f"{'child' if len(children) == 1 else 'children'} {','.join(children)} of node {event.node}"
    return f"node {event.node}, {len(children)} of {event.fan_in} children counted"


def _missing(seen: Sequence[Event]) -> list[str]:
    if not seen:
        return ["no packet of this PSN was captured"]
    no_switches = all(event.port is None for event in seen)
    missing = {
        "no captures of hosts: packets are seen only at the switches": all(
            event.port is not None for event in seen
        ),
        "no captures of switches: the outcomes of packets at switches are not known": no_switches,
        "the switches' captures do not show the outcomes of packets (ina switch --pcap-notes)": (
            not no_switches and not any(event.outcome for event in seen)
        ),
        "a capture does not show directions: a packet that is 'seen' may have come in or left": any(
            event.inbound is None for event in seen
        ),
        "no result was seen": not any(event.kind == wire.KIND_RESULT and not event.fate for event in seen),
    }
    return [remark for remark, is_missing in missing.items() if is_missing]
