"""Counters of the switch and its ports."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


def _counter(meaning: str) -> int:
    """Return a field that starts at 0 and says in a sentence what it counts (`meanings`)."""
    count: int = field(default=0, metadata={"meaning": meaning})
    return count


@dataclass(slots=True)
class PortStatistics:
    """Frames at one port by their fate. Only the two ``packets`` counters have bytes beside them."""

    rx_packets: int = _counter("Frames that arrived, before impairments.")
    rx_bytes: int = _counter("Bytes of the frames that arrived.")
    rx_lost: int = _counter("Arriving frames that an impairment dropped.")
    rx_corrupted: int = _counter("Arriving frames that an impairment corrupted.")
    rx_duplicated: int = _counter("Arriving frames that an impairment duplicated.")
    rx_reordered: int = _counter("Arriving frames that an impairment held back.")
    rx_queue_full: int = _counter("Arriving frames dropped while waiting for the port's rate.")
    rx_malformed: int = _counter(
        "Frames that were empty, longer than 9216 bytes, or offloaded superframes that cannot be split."
    )
    rx_socket_full: int = _counter(
        "Frames dropped by the kernel because the switch was too slow; a superframe counts once."
    )
    rx_no_program: int = _counter("Frames that arrived before a program was loaded.")
    rx_stranger: int = _counter(
        "Datagrams dropped because they did not come from the UDP port's peer; not in rx_packets."
    )
    ingress_dropped: int = _counter("Packets that came in here and were dropped by the program.")
    egress_dropped: int = _counter("Packets dropped by the program on their way out here.")
    tx_packets: int = _counter("Frames that left the port.")
    tx_bytes: int = _counter("Bytes of the frames that left the port.")
    tx_lost: int = _counter("Leaving frames that an impairment dropped.")
    tx_corrupted: int = _counter("Leaving frames that an impairment corrupted.")
    tx_duplicated: int = _counter("Leaving frames that an impairment duplicated.")
    tx_reordered: int = _counter("Leaving frames that an impairment held back.")
    tx_queue_full: int = _counter("Frames dropped because the port's egress queue was full.")
    tx_blocked: int = _counter(
        "Frames that the socket did not accept, or that nobody took from this memory port."
    )
    tx_no_peer: int = _counter("Frames dropped because no peer has sent to this UDP port yet.")
    tx_too_long: int = _counter("Frames longer than the interface's MTU.")


@dataclass(slots=True)
class SwitchStatistics:
    """Packets that no port can be blamed for: dropped ones, and those that changed threads."""

    no_port: int = _counter("Packets sent to a port that does not exist.")
    no_group: int = _counter("Packets multicast to a group, or cloned to a session, that does not exist.")
    loops: int = _counter("Packets that were resubmitted, recirculated or cloned without end.")
    overruns: int = _counter("Delayed frames dropped because no memory is set aside for more.")
    unloaded: int = _counter("Packets dropped from egress queues when another program was loaded.")
    handed_over: int = _counter("Packets that were processed by another thread than received them (no loss).")


PORT_COUNTERS = [f.name for f in fields(PortStatistics)]
SWITCH_COUNTERS = [f.name for f in fields(SwitchStatistics)]


def meanings(statistics: type[PortStatistics] | type[SwitchStatistics]) -> dict[str, str]:
    """Return a sentence for each counter, by its name, in their order."""
    return {each.name: each.metadata["meaning"] for each in fields(statistics)}
