"""Counters of the switch and its ports."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class PortStatistics:
    """Frames at one port by their fate. Only the two ``packets`` counters have bytes beside them."""

    rx_packets: int = 0
    """Arrived, before impairments."""
    rx_bytes: int = 0
    rx_lost: int = 0
    rx_corrupted: int = 0
    rx_duplicated: int = 0
    rx_reordered: int = 0
    rx_queue_full: int = 0
    """Dropped while waiting for the rate."""
    rx_malformed: int = 0
    """Empty, longer than 9216 bytes, or an offloaded superframe that cannot be split."""
    rx_socket_full: int = 0
    """Dropped by the kernel because the switch was too slow; a superframe counts once."""
    rx_no_program: int = 0
    """Before `Switch.load`."""
    rx_stranger: int = 0
    """Dropped because they did not come from the UDP port's peer; not in ``rx_packets``."""
    ingress_dropped: int = 0
    """By the program, of packets that came in here."""
    egress_dropped: int = 0
    """By the program, of packets on their way out here."""
    tx_packets: int = 0
    """Left the port."""
    tx_bytes: int = 0
    tx_lost: int = 0
    tx_corrupted: int = 0
    tx_duplicated: int = 0
    tx_reordered: int = 0
    tx_queue_full: int = 0
    tx_blocked: int = 0
    """The socket did not accept the frame, or nothing drains this memory port."""
    tx_no_peer: int = 0
    """No peer has sent to this UDP port yet."""
    tx_too_long: int = 0
    """The frame is longer than the interface's MTU."""


@dataclass(slots=True)
class SwitchStatistics:
    """Frames dropped that no port can be blamed for."""

    no_port: int = 0
    no_group: int = 0
    """Multicast to a group, or cloned to a session, that does not exist."""
    loops: int = 0
    """Resubmitted, recirculated or cloned without end."""
    overruns: int = 0
    """More frames delayed than memory is set aside for."""
    reloads: int = 0
    """Queued when another program was loaded."""


PORT_COUNTERS = [f.name for f in fields(PortStatistics)]
SWITCH_COUNTERS = [f.name for f in fields(SwitchStatistics)]
