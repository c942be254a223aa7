"""The counters of `statistics()`: the same keys for every engine, also for ranks that send no packets."""

from __future__ import annotations

from typing import Final

from hostlib.core.state import Counter

_OF_PACKETS: Final = tuple(f"packets_{counter.name.lower()}" for counter in Counter)
CALLS: Final = ("collectives", "elements", "time_s")
"""Keys of what a rank counts whether or not it sends packets."""
KEYS: Final = (
    *(*CALLS, "srtt_s", "hold_s", "window_packets", "aggregator_window_packets"),
    *("priority", "packets_from_strangers", *_OF_PACKETS),
)


def without_packets(*, collectives: int, elements: int, busy_ns: int) -> dict[str, float]:
    """Return the statistics of a rank that has sent no packets itself.

    Args:
        collectives: number of collectives carried out.
        elements: number of elements summed in them.
        busy_ns: time spent in them, in nanoseconds.

    Returns:
        A value for each of `KEYS`; 0 for all that concerns packets.
    """
    counted = {"collectives": float(collectives), "elements": float(elements), "time_s": busy_ns / 1e9}
    return {**dict.fromkeys(KEYS, 0.0), **counted}
