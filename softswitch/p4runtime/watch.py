"""Notifications of a switch: digests, and entries that have been idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import digests, tables
from softswitch.p4runtime.state import Bundle, Timeout

DIGEST_INTERVAL_S = 0.01
"""Time from look to look at the program's digests."""

_SHORTEST_S, _LONGEST_S = 0.01, 1.0


def interval_s(bundle: Bundle | None) -> float | None:
    """Return how soon to look again; None: there is nothing to look for."""
    if bundle is None or not (bundle.digests or bundle.timeouts):
        return None
    if bundle.digests:
        return DIGEST_INTERVAL_S
    shortest = min(timeout.timeout_ns for timeout in list(bundle.timeouts.values()))
    return min(max(shortest / 1e9 / 4, _SHORTEST_S), _LONGEST_S)


def look(bundle: Bundle) -> Iterator[Any]:
    """Yield a StreamMessageResponse for each list of digests and for idle entries; the switch is locked."""
    now_us = bundle.now_us()
    if bundle.digests:
        for digest in digests.due(bundle, 1000 * now_us):
            yield p4.StreamMessageResponse(digest=digest)
    idle = [
        tables.encoded(bundle, table, timeout.entry)
        for (table, _, _), timeout in bundle.timeouts.items()
        if _is_over(bundle, table, timeout, now_us)
    ]
    if idle:
        notification = p4.IdleTimeoutNotification(table_entry=idle, timestamp=1000 * now_us)
        yield p4.StreamMessageResponse(idle_timeout_notification=notification)


def _is_over(bundle: Bundle, table: str, timeout: Timeout, now_us: int) -> bool:
    """Return True, once after each hit, if an entry has been idle for its time."""
    last_us = bundle.pipeline.read_last_hit(table, timeout.entry)
    if 1000 * (now_us - last_us) < timeout.timeout_ns or timeout.told_us == last_us:
        return False
    timeout.told_us = last_us
    return True
