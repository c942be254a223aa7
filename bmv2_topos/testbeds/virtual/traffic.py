"""Ordinary traffic beside the jobs: flows of UDP packets, forwarded by the switch program's own tables.

A flow sends at its rate even if its packets are lost. It schedules packets in the fabric ahead of time, so
that they leave at the right times even if hosts are rarely served.
"""

from __future__ import annotations

import math
import random
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bmv2_topos.testbeds.virtual.fabric import Fabric
from bmv2_topos.testbeds.virtual.interfaces import Interfaces, Socket
from bmv2_topos.testbeds.virtual.report import FlowReport
from bmv2_topos.testbeds.virtual.settings import TestbedError
from controller.vocabulary import Topology
from hostlib import wire
from hostlib.core.state import NEVER

LEAST_BYTES = 60
MOST_BYTES = 9000
"""`LEAST_BYTES` and `MOST_BYTES`: bounds of the length of a flow's frames, in bytes."""

_AHEAD_NS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A flow of packets from the host `source` to the host `target`; both may also run workers of jobs."""

    source: str
    target: str
    rate_bps: float
    """Rate of whole frames, as links count it; the source's own link may limit it further."""
    packet_bytes: int = 1500
    """Length of a whole frame."""
    arrivals: Literal["constant", "poisson"] = "constant"
    """Times between packets: always the same (constant), or exponentially distributed (poisson)."""
    start_s: float = 0.0
    end_s: float | None = None
    """Time at which the flow ends; None: the end of the run."""

    def __post_init__(self) -> None:
        rate_bps, size = self.rate_bps, self.packet_bytes
        checks = (
            (self.source != self.target, "both ends are the same host"),
            (0 < rate_bps < math.inf, f"rate_bps is {rate_bps:g}, must be more than 0"),
            (
                LEAST_BYTES <= size <= MOST_BYTES,
                f"packet_bytes is {size}, must be {LEAST_BYTES} to {MOST_BYTES}",
            ),
            (
                self.arrivals in ("constant", "poisson"),
                f"arrivals is {self.arrivals!r}, must be 'constant' or 'poisson'",
            ),
            (self.start_s >= 0, f"start_s is {self.start_s:g}, must be 0 or more"),
        )
        for good, text in checks:
            if not good:
                raise TestbedError(f"flow {self.source}-{self.target}: {text}")

    def check(self, topology: Topology) -> None:
        """Raise TestbedError if the topology lacks one of the flow's hosts."""
        for name in (self.source, self.target):
            if all(host.name != name for host in topology.servers):
                raise TestbedError(f"flow {self.source}-{self.target}: there is no host {name!r}")


def random_flows(topology: Topology, count: int, rate_bps: float, seed: int) -> list[Flow]:
    """Draw Poisson flows between random hosts; if there are enough hosts, no two flows share a host.

    Args:
        topology: The network; hosts for fallback servers are not used.
        count: Number of flows.
        rate_bps: Rate of each flow.
        seed: Seed of the draw.

    Raises TestbedError if `count` is not 0 and there are fewer than two hosts.
    """
    hosts = topology.servers_for("worker")
    if count and len(hosts) < 2:
        raise TestbedError(f"flows need two hosts, and {topology.name or 'the network'} has {len(hosts)}")
    draw = random.Random(f"{seed}/flows")
    order: list[str] = []
    while len(order) < 2 * count:
        order += draw.sample(hosts, len(hosts) // 2 * 2)
    pairs = zip(order[::2], order[1::2], strict=True)
    return [
        Flow(source=source, target=target, rate_bps=rate_bps, arrivals="poisson")
        for (source, target), _ in zip(pairs, range(count), strict=False)
    ]


class RunningFlow:
    """A flow during a run. Times are nanoseconds."""

    def __init__(self, flow: Flow, fabric: Fabric, sink: Socket, seed: str, *, coalesce_us: int) -> None:
        """Start a flow whose packets arrive at `sink`; equal seeds give equal packets."""
        self.flow = flow
        self.host = flow.target
        self.port = sink.port
        self._fabric = fabric
        self._sink = sink
        self._frame = _frame(flow, fabric.topology, sink.port)
        gap_ns = flow.packet_bytes * 8e9 / flow.rate_bps
        self._gap: Callable[[], float] = lambda: gap_ns
        self._next_ns = flow.start_s * 1e9
        if flow.arrivals == "poisson":
            draw, per_ns = random.Random(seed).random, 1 / gap_ns
            self._gap = lambda: -math.log(1.0 - draw()) / per_ns  # `expovariate`, with one call less
            self._next_ns += self._gap()
        self._end_ns = math.inf if flow.end_s is None else flow.end_s * 1e9
        self._ahead_ns = max(_AHEAD_NS, 4000 * coalesce_us)
        self._scheduled = array("Q")
        """Times, in microseconds, at which scheduled packets leave that are not yet counted as sent."""
        self._sent = 0
        self._arrived = 0
        self.due = 0
        """Time at which the flow gets its next turn even if no packet arrives."""

    def poll(self, now: int) -> None:
        """Count arrived packets, and schedule the packets that are due soon."""
        self.count(self._sink.discard())
        if now >= self.due:
            self.schedule(now)

    def count(self, packets: int) -> None:
        """Count packets that have arrived."""
        self._arrived += packets

    def report(self, now: int) -> FlowReport:
        """Return the flow's counters so far."""
        self._note(now)
        self.count(self._sink.discard())
        flow = self.flow
        return FlowReport(
            source=flow.source,
            target=flow.target,
            packet_bytes=flow.packet_bytes,
            sent_packets=self._sent,
            arrived_packets=self._arrived,
        )

    def schedule(self, now: int) -> None:
        """Schedule the packets that are due soon."""
        self._note(now)
        horizon = now + self._ahead_ns
        until, next_ns, gap, up = min(horizon, self._end_ns), self._next_ns, self._gap, math.ceil
        times_us = array("Q")
        while next_ns < until:
            times_us.append(up(next_ns / 1000))
            next_ns += gap()
        self._next_ns = next_ns
        if times_us and times_us[0] < now // 1000:
            times_us = array("Q", [max(each, now // 1000) for each in times_us])
        self._scheduled.extend(times_us)
        self._fabric.send_later(self.flow.source, self._frame, times_us)
        # In time for the first packet that is not scheduled, though the next tick may be a little late.
        ahead_ns = self._ahead_ns // 2
        over = self._next_ns >= self._end_ns
        self.due = NEVER if over else max(horizon, math.floor(self._next_ns)) - ahead_ns

    def _note(self, now: int) -> None:
        """Count the packets sent by now."""
        sent = bisect_right(self._scheduled, now // 1000)
        self._sent += sent
        del self._scheduled[:sent]


def running_flows(
    flows: Sequence[Flow],
    ports: Sequence[int],
    fabric: Fabric,
    interfaces: Interfaces,
    *,
    seed: int,
    coalesce_us: int,
) -> list[RunningFlow]:
    """Start flows; the same seed gives the same packets.

    Args:
        flows: The flows.
        ports: UDP port of each flow.
        fabric: The network.
        interfaces: The hosts' interfaces.
        seed: Seed of the random times.
        coalesce_us: Length of a tick of the simulation: flows schedule packets several ticks ahead.
    """
    return [
        RunningFlow(
            flow,
            fabric,
            interfaces.open(flow.target, port),
            f"{seed}/flow/{number}",
            coalesce_us=coalesce_us,
        )
        for number, (flow, port) in enumerate(zip(flows, ports, strict=True))
    ]


def _frame(flow: Flow, topology: Topology, port: int) -> bytes:
    source, target = flow.source, flow.target
    addresses = wire.Endpoints(
        topology.mac(source), topology.mac(target), topology.ip(source), topology.ip(target), port
    )
    payload = flow.packet_bytes - wire.FRAME_PREFIX_BYTES
    prefix = np.frombuffer(wire.frame_prefix(addresses, payload), wire.PREFIX_DTYPE).copy()
    prefix["udp_dst"] = port
    return prefix.tobytes() + bytes(payload)
