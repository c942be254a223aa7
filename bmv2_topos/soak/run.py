"""One schedule, from the first packet to the last check."""

from __future__ import annotations

import functools
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import assert_never

import numpy as np

from bmv2_topos.faults import (
    ChangeRegion,
    Congest,
    LinkFault,
    RemoveJob,
    RestartFallback,
    RestartJob,
    Straggle,
    Strangers,
    TimedFault,
)
from bmv2_topos.soak import tofino
from bmv2_topos.soak.checks import ImpossibleOutcome, check_hosts, check_outcomes, traits
from bmv2_topos.soak.network import FROM_ELSEWHERE, START_NS, SoakNetwork, forge
from bmv2_topos.soak.programs import LANES
from bmv2_topos.soak.recovery import LONGEST_TIMEOUT_S, Recovery, RecoveryClock, TooSlow
from bmv2_topos.soak.schedule import JobPlan, SoakSchedule
from bmv2_topos.soak.sums import SCALE_BITS, SoakSum, SumSettings
from bmv2_topos.soak.testbed import RunningTestbed
from bmv2_topos.soak.worker import BATCH, WorkerStation, WrongError
from bmv2_topos.testbeds.virtual.network import Station, Trace
from bmv2_topos.testbeds.virtual.server import FallbackHost, endpoints
from bmv2_topos.testbeds.virtual.settings import COMPILED, Cores, WrongSum
from hostlib import wire
from hostlib.core.congestion import CONGESTION, SPREAD
from hostlib.core.state import CoreSettings, RtoLimits, turn_of
from hostlib.core.window import Window
from hostlib.fallback.config import FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree

PATIENCE_NS = 10_000_000_000
"""Limit of a schedule's virtual time: 500 times the longest time-out."""
MAX_STEPS = 400_000
_STRIDE = 16
_RTO = RtoLimits(initial_s=0.002, margin_s=0.0001, max_s=LONGEST_TIMEOUT_S, probe_s=0.00002)


class NoProgress(Exception):
    """A collective had not ended when the schedule reached the limit `PATIENCE_NS` or `MAX_STEPS`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that broke an invariant."""

    seed: int
    reason: str
    schedule: str
    """The schedule in words."""
    own: str | None = None
    """Path of the user's program; None: a program of p4src was run."""

    @property
    def command(self) -> str:
        """The command that runs the schedule again."""
        program = f" --program {shlex.quote(self.own)}" if self.own else ""
        return f"ina soak --replay {self.seed}{program}"


@dataclass(slots=True)
class Tally:
    """Results of schedules so far."""

    schedules: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Number of occurrences of each event, by name."""
    failures: list[Failure] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)

    @property
    def slowest(self) -> Recovery | None:
        """The recovery with the most round trips per packet; None if there was no recovery."""
        return max(self.recoveries, key=lambda each: each.round_trips_per_packet, default=None)

    @property
    def median_round_trips(self) -> float:
        """Median of the recoveries' numbers of round trips per missing packet; 0 without recoveries."""
        return median([each.round_trips_per_packet for each in self.recoveries] or [0.0])

    @property
    def largest_share(self) -> float:
        """Largest ratio of a recovery's duration to the recovery's time limit; 0 without recoveries."""
        return max((each.share for each in self.recoveries), default=0.0)

    def add(self, other: Tally) -> None:
        """Add the results of another tally."""
        self.schedules += other.schedules
        self.counts.update(other.counts)
        self.failures += other.failures
        self.recoveries += other.recoveries


class ScheduleFailed(Exception):
    """A schedule broke an invariant; `__cause__` says which."""

    def __init__(self, schedule: SoakSchedule, reason: str) -> None:
        self.schedule = schedule
        self.reason = reason
        super().__init__(reason)


@dataclass
class _RunningJob:
    plan: JobPlan
    generation: int
    sums: list[SoakSum]
    stations: list[WorkerStation]
    server: FallbackHost | None
    clock: RecoveryClock

    @property
    def finished(self) -> bool:
        return all(station.finished for station in self.stations)

    @property
    def wrapped(self) -> bool:
        """True if the job's PSNs have wrapped around."""
        window = self.stations[0].window
        return window is not None and window.psns().last < self.plan.first_psn


def run_schedule(
    schedule: SoakSchedule, built: RunningTestbed, trace: Trace | None = None, *, cores: Cores = COMPILED
) -> Tally:
    """Run a schedule on its testbed and check all invariants; return its result.

    Args:
        schedule: The schedule.
        built: The testbed of the schedule.
        trace: Called with every packet; None: no trace.
        cores: Implementations of the cores.

    Raises:
        ScheduleFailed: an invariant is broken.
        NativeMissing: the host library's compiled part is not there.
    """
    run = _Run(schedule, built, trace, cores)
    try:
        return run.carry_out()
    except (WrongSum, NoProgress, TooSlow, ImpossibleOutcome, WrongError) as error:
        at_us = (run.network.now - START_NS) / 1000
        raise ScheduleFailed(schedule, f"{type(error).__name__} after {at_us:.1f} us: {error}") from error


class _Run:
    def __init__(
        self, schedule: SoakSchedule, built: RunningTestbed, trace: Trace | None, cores: Cores
    ) -> None:
        self.cores = cores
        self.schedule = schedule
        self.built = built
        built.prepare({plan.number: plan for plan in schedule.jobs})
        self.network = SoakNetwork(schedule, built, trace)
        self.counts: Counter[str] = Counter()
        self.of_workers: Counter[str] = Counter()
        self.of_servers: Counter[str] = Counter()
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.refused: dict[str, Counter[str]] = defaultdict(Counter)
        self.servers: dict[str, FallbackHost] = {}
        self.jobs = {plan.number: self._make_job(plan) for plan in schedule.jobs}
        for event in schedule.events:
            if isinstance(event, Strangers):
                self.network.switches[event.switch].sampled = True
            self.network.call_at(START_NS + round(event.at_s * 1e9), self._happen, event)

    # ------------------------------------------------------------------ making

    def _make_job(self, plan: JobPlan) -> _RunningJob:
        schedule, network = self.schedule, self.network
        placement = schedule.testbed.placements[plan.number - 1]
        generator = np.random.default_rng((schedule.seed, plan.number))
        in_flight = plan.window if placement.server is None else max(1, plan.window // SPREAD)
        ranks, repaired = len(placement.workers), placement.server is not None
        summing = SumSettings(ranks, plan.numbers, repaired, turn_of(in_flight, ranks))
        sums = [
            SoakSum(index, collective, summing, generator)
            for index, collective in enumerate(plan.collectives)
        ]
        stations = []
        for rank, host in enumerate(placement.workers):
            stations.append(WorkerStation(network, host, rank, sums, self.of_workers, plan.defector))
        server = None
        if placement.server is not None:
            server = self.servers.get(placement.server) or self._make_server(placement.server)
        clock = RecoveryClock(schedule, plan, network, stations)
        return _RunningJob(plan, plan.generation, sums, stations, server, clock)

    def _make_server(self, host: str) -> FallbackHost:
        schedule, topology = self.schedule, self.schedule.testbed.topology
        settings = FallbackSettings(
            lanes=LANES,
            endpoints=endpoints(topology, host),
            capacity=schedule.server_capacity,
            remind_s=0.0001,
            remind_max_s=LONGEST_TIMEOUT_S,
        )
        send = functools.partial(self.network.send_all, host)
        server = FallbackHost(lambda: self.cores.server(settings), send, batch=BATCH)
        Station(self.network, host, server.serve)
        self.servers[host] = server
        return server

    def _start(self, job: _RunningJob) -> None:
        """Start all workers of a job that has been admitted."""
        plan, schedule = job.plan, self.schedule
        admitted = self.built.fleet.jobs[plan.number]
        tree = Tree.of(admitted.tree)
        if job.server is not None:
            job.server.add_job(FallbackJob(plan.number, admitted.epoch, tree, window=plan.window))
        done = min(station.done for station in job.stations)
        hosts = schedule.testbed.placements[plan.number - 1].workers
        slots = schedule.testbed.slots[plan.number - 1] or 2 * plan.window
        windows = []
        kernel = self.cores.kernel()
        for rank, host in enumerate(hosts):
            settings = CoreSettings(
                plan.number,
                rank,
                len(hosts),
                slots,
                LANES,
                endpoints(schedule.testbed.topology, host),
                rto=_RTO,
                first_psn=plan.first_psn,
                tree=tree,
                epoch=admitted.epoch,
                window=plan.window,
                fallback=job.server is not None,
                bare=plan.bare,
                numbers=plan.numbers,
                scale_bits=SCALE_BITS,
            )
            windows.append(Window(settings, kernel, CONGESTION[plan.congestion]()))
        for total in job.sums[done:]:
            total.results.clear()
        for station, window in zip(job.stations, windows, strict=True):
            station.start(window, done)

    # ------------------------------------------------------------------ running

    def carry_out(self) -> Tally:
        """Run all jobs to their end, check the invariants, and return the result."""
        for job in self.jobs.values():
            self._start(job)
        network = self.network
        stations = [station for job in self.jobs.values() for station in job.stations]
        deadline = START_NS + PATIENCE_NS
        steps = 0
        while not all(station.finished for station in stations):
            for _ in range(_STRIDE):
                if not network.step():
                    break
            steps += _STRIDE
            if not network.pending or network.now > deadline or steps > MAX_STEPS:
                break
        if not all(station.finished for station in stations):
            raise NoProgress(self._waiting(steps))
        for station in stations:
            station.note()
        for server in self.servers.values():
            for found in server.counts().values():
                self.of_servers += found
        for gauge in ("entries", "unfinished", "pieces"):
            del self.of_servers[gauge]
        self._collect()
        self._check()
        recoveries = [recovery for job in self.jobs.values() for recovery in job.clock.recoveries]
        return Tally(1, self._summary(recoveries), recoveries=recoveries)

    def _waiting(self, steps: int) -> str:
        who = []
        for number, job in self.jobs.items():
            for station in job.stations:
                if not station.finished and station.window is not None:
                    psns = station.window.outstanding()
                    who.append(
                        f"job {number} rank {station.rank} waits for PSNs {psns} of collective {station.done}"
                    )
        return f"after {steps} steps: " + ("; ".join(who) or "no job is running")

    def _collect(self) -> None:
        for switch, found in self.built.collect_outcomes().items():
            self.outcomes[switch].update(found)

    def _check(self) -> None:
        restarted = self.counts["job restarted"] > 0
        check_outcomes(self.schedule, self.network, self.outcomes, self.refused, restarted=restarted)
        check_hosts(self.schedule, self.of_workers, self.of_servers)
        for switch, strays in self.built.strays().items():
            if strays:
                raise ImpossibleOutcome(
                    f"switch {switch}: {strays} packets left by ports that lead to no member of their jobs"
                )

    # ------------------------------------------------------------------ events

    def _happen(self, event: TimedFault) -> None:
        match event:
            case RestartJob():
                self._stop_job(event)
            case RestartFallback():
                server = self.jobs[int(event.job)].server
                assert server is not None
                server.restart(self.network.now, round(event.down_s * 1e9))
                self.counts["fallback server restarted"] += 1
            case ChangeRegion():
                fleet, number = self.built.fleet, int(event.job)
                if number in fleet.jobs and fleet.move(number, {event.switch: event.region}):
                    self.counts["region changed"] += 1
            case Congest():
                self.counts["switch congested"] += 1
                self.built.mark_all(event.switch, True)
                end = self.network.now + round(event.for_s * 1e9)
                self.network.call_at(end, self.built.mark_all, event.switch, False)
            case LinkFault():
                self.counts["link cut"] += 1
                ends = [{link.a, link.b} for link in self.schedule.testbed.topology.links]
                until = self.network.now + round(event.for_s * 1e9)
                self.network.cut(ends.index({*event.link}), until)
            case Strangers():
                self._send_strangers(event)
            case Straggle() | RemoveJob():
                raise ValueError(f"{event}: the soak does not support such faults")
            case _:
                assert_never(event)

    def _stop_job(self, event: RestartJob) -> None:
        job = self.jobs[int(event.job)]
        if job.plan.defector is not None:
            return  # its expected results are then unknown
        fleet = self.built.fleet
        if job.finished or job.plan.number not in fleet.jobs or job.stations[0].window is None:
            return
        self.counts["job restarted"] += 1
        for station in job.stations:
            station.stop()
        if event.removed_at_once:
            self._remove(job)
        self.network.call_at(self.network.now + round(event.down_s * 1e9), self._restart_job, job)

    def _remove(self, job: _RunningJob) -> None:
        self._collect()
        self.built.remove(job.plan.number)
        if job.server is not None:
            job.server.remove_job(job.plan.number)

    def _restart_job(self, job: _RunningJob) -> None:
        if job.plan.number in self.built.fleet.jobs:
            self._remove(job)
        job.generation = job.generation % (2**32 - 1) + 1
        self._collect()
        self.built.admit(job.plan, job.generation)
        self._start(job)

    def _send_strangers(self, event: Strangers) -> None:
        switch = self.network.switches[event.switch]
        if switch.sample is None:
            return
        port, frame = switch.sample
        packet = np.frombuffer(frame, wire.packet_dtype(LANES, framed=True))
        number = int(packet["job"][0])
        admitted = self.built.fleet.jobs.get(number)
        if admitted is None or int(packet["epoch"][0]) != admitted.epoch:
            return
        for kind in event.kinds:
            forged, outcome = forge(kind, frame)
            if self.schedule.testbed.tofino:
                outcome = tofino.OUTCOMES.get(outcome, outcome)
            enters = port
            if kind == FROM_ELSEWHERE:
                enters = self.built.host_ports[self.schedule.testbed.strangers[event.switch]][1]
            self.refused[event.switch][outcome] += 1
            self.counts[f"stranger: {kind}"] += 1
            switch.inject(enters, forged)

    # ------------------------------------------------------------------ summary

    def _summary(self, recoveries: Sequence[Recovery]) -> Counter[str]:
        """Return the number of occurrences of each event, by ``group: name``."""
        begun = ("begun after faults" if each.begun_in_calm else "begun during faults" for each in recoveries)
        groups = {
            "event": self.counts,
            "link": self.network.counts,
            "switch": sum(self.outcomes.values(), Counter[str]()),
            "worker": self.of_workers,
            "server": self.of_servers,
            "recovery": Counter(begun),
        }
        counts: Counter[str] = Counter()
        for group, found in groups.items():
            counts.update({f"{group}: {name}": value for name, value in found.items()})
        counts["packets into switches"] = sum(switch.arrived for switch in self.network.switches.values())
        counts.update(traits(self.schedule))
        counts["kind: PSNs wrapped"] += sum(job.wrapped for job in self.jobs.values())
        ends_us = self.schedule.clock_us + (self.network.now - START_NS) // 1000
        counts["kind: switch clock wrapped"] += ends_us >= 2**32
        return counts
