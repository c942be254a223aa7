"""The network of a testbed while a schedule runs: the switches, and the schedule's effects on the links."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.soak.programs import LANES
from bmv2_topos.soak.schedule import SoakSchedule
from bmv2_topos.soak.testbed import RunningTestbed
from bmv2_topos.testbeds.virtual.network import HOST_PORT, Network, SwitchNode, Trace, Wire
from hostlib import wire
from hostlib.wire import FRAME_PREFIX_BYTES, KIND_GRADIENT, packet_dtype

# ---------------------------------------------------------------------------
# Frames that a switch must refuse, each made from a frame that the switch accepted.


_HEADER = wire.FRAME_PREFIX_BYTES
_NO_LANES = _HEADER + wire.INA_BYTES
_ADDRESSES = wire.ETHERNET_BYTES + 12
"""Offset of the IPv4 addresses in a frame. The addresses take 8 bytes, which the IPv4 header's checksum
protects."""

_CHANGES: Final[Mapping[str, tuple[str, Mapping[str, int], Mapping[str, int]]]] = {
    "another epoch": ("wrong_epoch", {}, {"epoch": 0x55}),
    "bits of two ranks": ("wrong_rank", {"bitmap": 0x8000_0001}, {}),
    "no rank": ("wrong_rank", {"bitmap": 0}, {}),
    "another node": ("wrong_rank", {}, {"node": 1}),
    "another fan-in": ("wrong_fan_in", {}, {"fan_in": 1}),
    "another version": ("bad_version", {"version_kind": wire.KIND_GRADIENT}, {}),
    "no such kind": ("bad_kind", {"version_kind": wire.version_kind(wire.KIND_REMINDER + 1)}, {}),
    "too few lanes": ("bad_lanes", {"lanes": LANES - 1}, {}),
    "too many valid": ("bad_length", {"valid": LANES + 1}, {}),
    "another job": ("unknown_job", {"job": 0xFFF0}, {}),
    "an order from below": (
        *("wrong_direction", {"version_kind": wire.version_kind(wire.KIND_STATUS), "lanes": 0, "valid": 0}),
        {},
    ),
}
"""For each kind of forged frame: the outcome that a switch must count for the frame, the values to set in
header fields, and the amounts to add to header fields."""
FROM_ELSEWHERE = "another port"
KINDS = (FROM_ELSEWHERE, *_CHANGES, "cut off", "too long", "damaged address")


def forge(kind: str, frame: bytes) -> tuple[bytes, str]:
    """Return a forged frame, made from a contribution, and the outcome that a switch must count for it.

    For the kind `FROM_ELSEWHERE` the frame is unchanged: send it to a port without a member of the job.
    """
    if kind == FROM_ELSEWHERE:
        return frame, "wrong_port"
    if kind == "cut off":
        return frame[: _NO_LANES - 1], "truncated"
    if kind == "too long":
        return frame + b"\0", "bad_length"
    if kind == "damaged address":
        return damaged(frame, 5), "bad_checksum"
    outcome, fields, added = _CHANGES[kind]
    packet = np.frombuffer(frame, wire.packet_dtype(LANES, framed=True)).copy()
    for name, value in fields.items():
        packet[name] = value
    for name, value in added.items():
        packet[name] += value
    return _shortened(packet) if outcome == "wrong_direction" else packet.tobytes(), outcome


def damaged(frame: bytes, which: int) -> bytes:
    """Return a frame with bit `which` (modulo 64) of its IPv4 addresses flipped."""
    at = _ADDRESSES + which // 8 % 8
    return frame[:at] + bytes([frame[at] ^ 1 << which % 8]) + frame[at + 1 :]


def _shortened(packet: NDArray[Any]) -> bytes:
    """Return the frame without its lanes, with lengths and checksum corrected."""
    packet["udp_length"] = wire.UDP_BYTES + wire.INA_BYTES
    packet["ip_total_len"] = wire.IPV4_BYTES + wire.UDP_BYTES + wire.INA_BYTES
    packet["ip_checksum"] = 0
    header = packet.tobytes()[wire.ETHERNET_BYTES : wire.ETHERNET_BYTES + wire.IPV4_BYTES]
    packet["ip_checksum"] = wire.ipv4_checksum(header)
    return packet.tobytes()[:_NO_LANES]


_KIND = FRAME_PREFIX_BYTES
_JOB = slice(_KIND + 2, _KIND + 4)
"""`_KIND` and `_JOB`: positions of the packet's kind and of the job's id in a frame."""
_CONTRIBUTION_BYTES = packet_dtype(LANES, framed=True).itemsize
START_NS = 1_000_000_000


class SoakSwitch(SwitchNode):
    """A switch of the testbed. It has no queues: packets that it sends leave at once."""

    def __init__(self, network: Network, name: str, built: RunningTestbed, clock_us: int) -> None:
        super().__init__(network, name, built.switches[name], ahead_us=clock_us - START_NS // 1000)
        self.arrived = 0
        """Number of packets that arrived at the switch."""
        self.damaged = 0
        """Number of arrived packets with a damaged header."""
        self.sampled = False
        """True to keep the last arrived contribution in `sample`."""
        self.sample: tuple[int, bytes] | None = None
        """Ingress port and frame of the kept contribution, which has the size of frames from hosts.

        Frames of other sizes are not kept: between switches, a user's program may add its own headers.
        """
        self._ways = built.ways[name]

    def deliver(self, port: int, frame: bytes) -> None:
        """Process a packet from a link, and send the resulting packets.

        If `sampled` is set and the packet is a contribution, keep it in `sample`.
        """
        if self.sampled and frame[_KIND] & 0x0F == KIND_GRADIENT and len(frame) == _CONTRIBUTION_BYTES:
            self.sample = port, frame
        self.inject(port, frame)

    def deliver_damaged(self, port: int, frame: bytes) -> None:
        """Process a packet with a damaged header."""
        self.damaged += 1
        self.inject(port, frame)

    def inject(self, port: int, frame: bytes) -> None:
        """Process a packet, which may be forged, and send the resulting packets."""
        self.arrived += 1
        super().deliver(port, frame)

    def ways(self, frame: bytes) -> Iterable[int]:
        """Return the ports by which packets of the frame's job can leave."""
        return self._ways.get(int.from_bytes(frame[_JOB]), ())


class SoakNetwork(Network):
    """A network with the links of a schedule, which also damage headers until the calm begins."""

    def __init__(self, schedule: SoakSchedule, built: RunningTestbed, trace: Trace | None = None) -> None:
        super().__init__(schedule.links, seed=f"links {schedule.seed}", start=START_NS)
        self.trace = trace
        self.coalesce_us = schedule.coalesce_us
        self.calm_from = START_NS + schedule.calm_us * 1000
        self.wires.update(built.wires)
        for host, (switch, port, link) in built.host_ports.items():
            self.wires[host] = {HOST_PORT: Wire(link, switch, port)}
        clock_us = built.pool.next_clock_us(schedule.clock_us)
        self.switches = {name: SoakSwitch(self, name, built, clock_us) for name in built.switches}

    def cut(self, link: int, until: int) -> None:
        """Make a link lose all packets until the time `until`, in nanoseconds."""
        self.links[link].cut_until = max(until, self.links[link].cut_until)

    def corrupted(self, wire: Wire, frame: bytes) -> Callable[[], None] | None:
        """Return a function that delivers `frame` with damaged addresses; None if the frame must be dropped.

        Half of the corrupted frames to switches are delivered, as if their frame check sequences were still
        valid. All other corrupted frames are dropped.
        """
        if wire.to not in self.switches or self.random.random() >= 0.5:
            return None
        bad = damaged(frame, self.random.randrange(64))
        return functools.partial(self.switches[wire.to].deliver_damaged, wire.port, bad)


# ---------------------------------------------------------------------------
# Packets in words, to examine a failed schedule.


class PacketLog:
    """Keeps the last packets of a schedule, to print them after a failure."""

    def __init__(self, most: int) -> None:
        self._packets: deque[tuple[int, str, str, bytes, str]] = deque(maxlen=most)

    def __call__(self, now: int, source: str, to: str, frame: bytes, fate: str) -> None:
        """Record a packet."""
        self._packets.append((now, source, to, frame, fate))

    def lines(self) -> list[str]:
        """Return a line for each packet."""
        return [
            f"{(now - START_NS) / 1000:10.1f} us  {source:>5} > {to:<5} {describe(frame)}"
            + (f"  [{fate}]" if fate else "")
            for now, source, to, frame, fate in self._packets
        ]


def describe(frame: bytes) -> str:
    """Return a frame in words, in one line."""
    start = wire.FRAME_PREFIX_BYTES
    if len(frame) < start + wire.INA_BYTES:
        return f"{len(frame)} bytes"
    header = np.frombuffer(frame, wire.HEADER_DTYPE, 1, start)[0]
    number = int(header["version_kind"]) & 0x0F
    kind = wire.NAMES_OF_KINDS.get(number, number)
    flags = " ".join(name for bit, name in wire.NAMES_OF_FLAGS.items() if int(header["flags"]) & bit)
    parts = [
        f"{kind:<8} job {header['job']} epoch {header['epoch']:3} psn {header['psn']}",
        f"node {header['node']} bitmap {int(header['bitmap']):b} fan-in {header['fan_in']}",
        f"exponent {header['exponent']} valid {int(header['valid']) & ~wire.VALID_INT32}",
    ]
    if header["lanes"]:
        lane = int.from_bytes(frame[start + wire.INA_BYTES :][:4], "big", signed=True)
        parts.append(f"lane 0 {lane}")
    return ", ".join([*parts, flags] if flags else parts)
