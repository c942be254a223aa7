"""Recovery of jobs after the last fault: its time limit, in round trips for each missing packet.

Theory of operation
-------------------
From the *calm* on, which comes after the last event of a schedule, links deliver every packet. Each
collective that is then under way, and each one called later, is timed: from the start of the calm, or from
the call of its last rank, until its last rank has finished. The time limit is proportional to the number of
packets whose result some rank lacks. Earlier events do not change the time limit, except that losses
may have made time-outs long.

In shared mode no slot keeps a result: a rank that loses a result gets it from the other ranks. Once a rank
has died or given up, its job has no time limit any more; only its errors are checked (`soak.worker`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bmv2_topos.soak.network import START_NS
from bmv2_topos.soak.schedule import JobPlan, SoakSchedule
from bmv2_topos.soak.worker import WorkerStation
from bmv2_topos.testbeds.virtual.network import Network
from controller.vocabulary.lists import by_key
from hostlib.core.window import Window

LONGEST_TIMEOUT_S: Final = 0.02
"""Longest time-out of workers and fallback servers in schedules: doubling stops there."""

ROUND_TRIPS: Final = 4
"""Round trips allowed for each packet. One is for the sum itself, because a job may have a single packet in
flight. One is for the repair of an overflow. Two are for partial sums that reach the fallback server one by
one: the server waits for about one round trip, and then asks for the missing parts, which takes another round
trip."""

TIMEOUTS: Final = 1.75
"""Time allowed for all packets together, as a multiple of the longest time-out. Packets that were lost before
the calm time out at about the same time. A time-out handles only packets that were sent at least three
quarters of the time-out earlier. Later packets wait for the next time-out, which may be the longest. At a
time-out the worker asks which ranks have contributed; if the answer does not suffice, the worker removes the
stuck partial sum from its slot (`take_status` of the core)."""

_SHOWN = 8


class TooSlow(Exception):
    """A collective has exceeded its time limit (`allowed_ns`) in the calm, the time after the last fault."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A collective that has ended in the calm, the time after the last fault, and its duration.

    The duration begins with the calm, or with the call of the collective by its last rank if that is later.
    """

    seed: int
    job: int
    collective: int
    packets: int
    """Number of packets whose result at least one rank lacked when the timing began."""
    round_trip_ns: int
    duration_ns: int
    begun_in_calm: bool

    @property
    def round_trips_per_packet(self) -> float:
        """Duration in round trips, time-outs included, divided by the number of packets."""
        return self.duration_ns / self.round_trip_ns / self.packets

    @property
    def share(self) -> float:
        """Duration as a fraction of the time limit."""
        return self.duration_ns / allowed_ns(self.packets, self.round_trip_ns)


def allowed_ns(packets: int, round_trip_ns: int) -> int:
    """Return the time limit, in ns, of a collective that lacks the results of `packets` packets."""
    return ROUND_TRIPS * packets * round_trip_ns + round(TIMEOUTS * LONGEST_TIMEOUT_S * 1e9)


def unfinished_packets(window: Window) -> list[int]:
    """Return the packets of a window's collective, by index, that have no result yet."""
    state = window.state
    indices = np.arange(state.struct.total)
    next_of_chain = state.index[(int(state.struct.base) + indices) % state.struct.window]
    missing: list[int] = indices[next_of_chain <= indices].tolist()
    return missing


def round_trip_ns(schedule: SoakSchedule, job: int) -> int:
    """Return the longest round trip of a job's packets, to the root of the tree and back, in nanoseconds.

    In shared mode the round trip includes the way to the fallback server and back. It also includes the delay
    `coalesce_us` at every host.
    """
    topology = schedule.testbed.topology
    placement = schedule.testbed.placements[job - 1]
    delays_us = {
        frozenset((link.a, link.b)): round(does.delay_s * 1e6)
        for link, does in zip(topology.links, schedule.links, strict=True)
    }

    def to_root_us(node: str) -> int:
        above = topology.parents[node]
        return 0 if above is None else delays_us[frozenset((node, above))] + to_root_us(above)

    way_us = 2 * max(map(to_root_us, placement.workers)) + schedule.coalesce_us
    if placement.server is not None:
        way_us += 2 * to_root_us(placement.server) + schedule.coalesce_us
    return way_us * 1000


@dataclass(frozen=True, slots=True)
class _TimedCollective:
    collective: int
    began: int
    packets: int
    in_calm: bool


class RecoveryClock:
    """Times the collectives of one job in the calm, the time after a schedule's last fault."""

    def __init__(
        self, schedule: SoakSchedule, plan: JobPlan, network: Network, stations: Sequence[WorkerStation]
    ) -> None:
        self.recoveries: list[Recovery] = []
        """One entry for each timed collective that has ended."""
        self._seed = schedule.seed
        self._plan = plan
        self._network = network
        self._stations = stations
        self._round_trip_ns = round_trip_ns(schedule, plan.number)
        self._needs_all = schedule.testbed.placements[plan.number - 1].server is not None
        self._calm = False
        self._timed: _TimedCollective | None = None
        for station in stations:
            station.on_call, station.on_done = self._called, self._done
        network.call_at(START_NS + schedule.settled_us * 1000, self._begin_calm)

    def _begin_calm(self) -> None:
        self._calm = True
        self._begin(in_calm=False)

    def _called(self) -> None:
        if self._calm and self._timed is None:
            self._begin(in_calm=True)

    def _begin(self, *, in_calm: bool) -> None:
        """Start to time the collective, if any, that all ranks have called and not all have finished."""
        collective = min(station.done for station in self._stations)
        if any(station.done == collective and not station.busy for station in self._stations):
            return
        if self._plan.defector is not None and collective == len(self._plan.collectives) - 1:
            return  # the collective of a defector cannot end
        packets = len(self._lacking(collective))
        self._timed = timed = _TimedCollective(collective, self._network.now, packets, in_calm)
        self._network.call_at(timed.began + allowed_ns(packets, self._round_trip_ns), self._judge, timed)

    def _done(self) -> None:
        timed = self._timed
        if timed is None or any(station.done <= timed.collective for station in self._stations):
            return
        self._timed = None
        duration_ns = self._network.now - timed.began
        self.recoveries.append(
            Recovery(
                *(self._seed, self._plan.number, timed.collective, timed.packets),
                *(self._round_trip_ns, duration_ns, timed.in_calm),
            )
        )

    def _judge(self, timed: _TimedCollective) -> None:
        """Check that a collective has ended by its time limit. Raises TooSlow."""
        if timed is not self._timed or self._beyond_repair:
            return
        slow = self._lacking(timed.collective)
        shown = [
            f"{psn} (rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))})"
            for psn, ranks in list(slow.items())[:_SHOWN]
        ]
        more = f" and {len(slow) - _SHOWN} more" if len(slow) > _SHOWN else ""
        since = "its last rank called it" if timed.in_calm else "the calm began"
        passed_ns = self._network.now - timed.began
        each = passed_ns / self._round_trip_ns / timed.packets
        raise TooSlow(
            f"job {self._plan.number} recovers too slowly: it lacked {timed.packets} packets of collective"
            f" {timed.collective} when {since}; {passed_ns / 1000:.0f} µs ({each:.1f} round trips per packet)"
            f" later it still lacks PSNs {', '.join(shown)}{more}"
        )

    @property
    def _beyond_repair(self) -> bool:
        return self._needs_all and any(station.silent or station.error for station in self._stations)

    def _lacking(self, collective: int) -> Mapping[int, list[int]]:
        """Return the ranks that lack the result of a packet, by the PSN of the packet."""
        return by_key(
            (station.window.state.psn(index), station.rank)
            for station in self._stations
            if station.done == collective and station.window is not None
            for index in unfinished_packets(station.window)
        )
