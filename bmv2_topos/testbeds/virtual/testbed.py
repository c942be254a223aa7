"""The testbed: all parts together, and the clock that drives them.

Time jumps from one *tick* to the next: to the next moment at which anything is due, but by at least
`VirtualSettings.coalesce_us`. At a tick, the switches first process their events up to now. Then due jobs
arrive, due faults happen, and the allocation policy is called if its period is over. Then every host with
pending work receives its arrived packets and sends the packets that its windows permit. Which host goes first
changes with every tick.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import assert_never

from bmv2_topos.faults import (
    ChangeRegion,
    Congest,
    Fault,
    Kill,
    LinkFault,
    RemoveJob,
    RestartFallback,
    RestartJob,
    Straggle,
    Strangers,
    TimedFault,
    impossible,
)
from bmv2_topos.testbeds.virtual.admission import VirtualFleet
from bmv2_topos.testbeds.virtual.allocation import OccupancySampler, Reallocation, Reallocator
from bmv2_topos.testbeds.virtual.fabric import Fabric
from bmv2_topos.testbeds.virtual.interfaces import Assignment, Interfaces
from bmv2_topos.testbeds.virtual.jobs import RunningJob, StallCheck, describe_waiting, request_of, slack_s
from bmv2_topos.testbeds.virtual.placement import Placement
from bmv2_topos.testbeds.virtual.recorder import Recorder
from bmv2_topos.testbeds.virtual.report import Report
from bmv2_topos.testbeds.virtual.settings import COMPILED, Stalled, TestbedError, VirtualSettings
from bmv2_topos.testbeds.virtual.traffic import Flow, running_flows
from bmv2_topos.testbeds.virtual.turns import HostTurns, Pollable
from controller.vocabulary import Job, Topology
from hostlib.core.congestion import BadLimits
from hostlib.core.state import NEVER
from hostlib.errors import JobFault

_PROGRESS_TICKS = 256

Progress = Callable[[float, int, int], None]
"""Function to call with the virtual time (s), the iterations done and the total, over all jobs."""


class VirtualTestbed:
    """One run of jobs on a topology, in virtual time; `run` may be called once.

    Raises:
        TestbedError: the jobs cannot run on the topology.
    """

    def __init__(
        self,
        topology: Topology,
        jobs: Sequence[Job],
        placements: Sequence[Placement],
        settings: VirtualSettings | None = None,
        faults: Sequence[Fault] = (),
        *,
        flows: Sequence[Flow] = (),
        allocation: Reallocation | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Prepare jobs, with one placement each, on a topology, with `flows` of ordinary traffic beside them.

        `allocation` changes the regions of jobs that share slots as they run; `recorder` records all packets.
        """
        self.topology = topology
        self.settings = settings = settings or VirtualSettings()
        names = [entry.name for entry in jobs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise TestbedError(f"two jobs are called {twice!r}")
        requests = [
            request_of(entry, placement, settings, topology, jobs=len(jobs))
            for entry, placement in zip(jobs, placements, strict=True)
        ]
        workers = {entry.name: entry.workers for entry in jobs}
        for fault in faults:
            wrong = impossible(fault, topology, workers)
            if why := wrong[1] if wrong else unsupported(fault):
                raise TestbedError(why)
        self._faults = sorted(_in_turn(faults), key=lambda fault: fault.at_s, reverse=True)
        for flow in flows:
            flow.check(topology)
        if allocation is not None and not settings.shares:
            raise TestbedError(
                f"an allocation policy needs shared slots, and {settings.offers.title} has exclusive ones"
            )
        ports = Assignment.of([request.placement for request in requests], [flow.target for flow in flows])
        self.fabric = Fabric(topology, settings.compiled, seed=settings.seed, recorder=recorder)
        self.fleet = VirtualFleet(
            topology,
            self.fabric.switches,
            self.fabric.pipelines,
            settings.objects,
            slots=settings.slots,
        )
        if settings.ecn_depth is not None:
            self.fleet.set_ecn_threshold(settings.ecn_depth)
        interfaces = Interfaces(self.fabric)
        for host in dict.fromkeys(flow.target for flow in flows):
            sources = [flow.source for flow in flows if flow.target == host]
            self.fleet.bridge_to(host, sources, random.Random(f"{settings.seed}/way/{host}"))
        self._flows = running_flows(
            flows,
            ports.sinks,
            self.fabric,
            interfaces,
            seed=settings.seed,
            coalesce_us=settings.coalesce_us,
        )
        self._allocator: Reallocator | None = None
        if allocation is not None:
            self._allocator = Reallocator(allocation, self.fleet, slots=settings.slots)
        kernel = settings.cores.kernel()
        self.jobs = {
            entry.name: RunningJob(
                entry=entry,
                id=number,
                placement=placement,
                request=request,
                ports=own_ports,
                settings=settings.slower(slack_s(entry, placement, settings, topology)),
                topology=topology,
                interfaces=interfaces,
                fleet=self.fleet,
                kernel=kernel,
                starts_ns=round(entry.arrival_s * 1e9),
                recorder=recorder,
            )
            for number, (entry, placement, request, own_ports) in enumerate(
                zip(jobs, placements, requests, ports.jobs, strict=True), start=1
            )
        }
        if recorder is not None:
            recorder.jobs += [job.facts() for job in self.jobs.values()]
        self._left = list(self.jobs.values())
        """Jobs that are not yet done, removed or refused."""
        self._sampler = OccupancySampler(self.fabric, settings, self.jobs)
        quick = recorder is None and settings.cores.kernel is COMPILED.kernel
        self._stall = StallCheck(settings.patience_s)
        self._turns = HostTurns(self.fabric, interfaces, quick=quick)
        self._owners: list[str] = []
        """By the number of each seat in `_turns`: name of the job whose worker or fallback server has the
        seat; "" for the seat of a flow's sink."""
        self._seated = False
        """False if `_turns` must get new seats, because workers, servers or sinks have changed."""

    # ------------------------------------------------------------------ the clock

    def run(self, progress: Progress | None = None) -> Report:
        """Run all jobs to their ends, and return the report.

        Raises:
            WrongSum: a worker received a result that is not the sum.
            Stalled: no worker gets results any more, or `limit_s` is over.
            TestbedError: a congestion control fails, or gives ranks with equal reports different windows.
            controller.ControllerError: the switches cannot take a job, or regions that the policy returned;
                see `VirtualSettings.report_refusals` and `Reallocator`.
            Exception: any exception of the policy.
        """
        began = time.perf_counter()
        fabric, settings = self.fabric, self.settings
        limit_us = round(settings.limit_s * 1e6)
        ticks = 0
        with closing(fabric), _spared_from_collection():
            try:
                while self._left:
                    now_us = max(fabric.now_us + settings.coalesce_us, self._next_us())
                    if now_us > limit_us:
                        waiting = describe_waiting(self._left)
                        raise Stalled(
                            f"jobs have not ended after {settings.limit_s:g} s of virtual time: {waiting}"
                        )
                    ticks += 1
                    self._sampler.sample(now_us * 1000, self._generations)
                    fabric.advance(now_us)
                    self._tick(now_us * 1000, ticks)
                    if progress is not None and ticks % _PROGRESS_TICKS == 0:
                        progress(now_us * 1e-6, *self._progress())
                return self._report(time.perf_counter() - began)
            except (BadLimits, JobFault) as error:
                raise TestbedError(str(error)) from error

    def _tick(self, now: int, number: int) -> None:
        for job in self._left:
            if job.admitted is None and job.starts_ns <= now:
                job.admit(now)
                self._seated = False
        while self._faults and self._faults[-1].at_s * 1e9 <= now:
            self._happen(self._faults.pop(), now)
            self._seated = False
        if self._allocator is not None:
            self._allocator.serve(now, self._left)
        self._take_seats()
        names = {self._owners[seat] for seat in self._turns.run_tick(now, number)}
        for job in [job for job in self._left if job.entry.name in names]:
            job.end_iterations(now)
        self.fleet.settle()
        if any(job.gone for job in self._left):
            self._left = [job for job in self._left if not job.gone]
            self._seated = False
        self._stall.check(self._left, now)

    def _next_us(self) -> int:
        self._take_seats()
        due = [self._turns.due()]
        due += [job.starts_ns for job in self._left if job.admitted is None]
        if self._faults:
            due.append(round(self._faults[-1].at_s * 1e9))
        if self._allocator is not None:
            due.append(self._allocator.due)
        next_us = -(-min(due, default=NEVER) // 1000)
        event_us = self.fabric.next_event_us()
        return next_us if event_us is None else min(next_us, event_us)

    def _take_seats(self) -> None:
        if self._seated:
            return
        self._seated = True
        seats: list[tuple[Pollable, str]] = [(flow, "") for flow in self._flows]
        for job in self._left:
            seats += [(worker, job.entry.name) for worker in job.workers]
            if job.server is not None:
                seats.append((job.server, job.entry.name))
        self._owners = [name for _, name in seats]
        self._turns.assign_seats([each for each, _ in seats])

    def _generations(self) -> dict[int, str]:
        return {job.admitted.generation: job.entry.name for job in self._left if job.admitted is not None}

    def _progress(self) -> tuple[int, int]:
        jobs = [job for job in self.jobs.values() if not job.removed]
        return sum(len(job.ends_ns) for job in jobs), sum(job.entry.iterations for job in jobs)

    # ------------------------------------------------------------------ faults

    def _happen(self, fault: TimedFault, now: int) -> None:
        if isinstance(fault, LinkFault):
            self.fabric.set_loss(*fault.link, fault.value)
            return
        assert not isinstance(fault, Congest | Strangers)
        job = self.jobs[fault.job]
        if job.gone:
            return
        if isinstance(fault, RemoveJob):
            job.leave(now)
            job.removed = True
            return
        if job.admitted is None:
            return
        match fault:
            case RestartJob():
                job.withdraw()
                job.restarts += 1
                job.starts_ns = now + round(fault.down_s * 1e9)
            case RestartFallback():
                if job.server is not None:
                    job.server.restart(now, round(fault.down_s * 1e9))
            case ChangeRegion():
                if self.settings.shares:
                    places = (fault.switch,) if fault.switch else job.admitted.switches
                    self.fleet.move(job.id, dict.fromkeys(places, fault.region))
            case Straggle():
                job.workers[fault.rank].training.compute_ns = round(fault.compute_s * 1e9)
            case _:
                assert_never(fault)

    # ------------------------------------------------------------------ the report

    def _report(self, wall_s: float) -> Report:
        settings = self.settings
        self._turns.sync()
        counted = self.fabric.counted()
        aggregating = sum(switch.aggregates for switch in self.topology.switches)
        return Report(
            setup={
                "program": settings.program,
                "topology": self.topology.name,
                "slots": settings.slots,
                "lanes": settings.lanes,
                "seed": settings.seed,
            },
            jobs=tuple(job.report() for job in self.jobs.values()),
            duration_s=self.fabric.now_us * 1e-6,
            occupancy=self._sampler.samples(),
            slots=settings.slots * aggregating,
            dropped_packets=counted.dropped_packets,
            lost_packets=counted.lost_packets,
            flows=tuple(flow.report(self.fabric.now_us * 1000) for flow in self._flows),
            host_bytes=counted.host_bytes,
            trunk_bytes=counted.trunk_bytes,
            link_bytes=counted.link_bytes,
            packet_hops=counted.packet_hops,
            switches=tuple(self.topology.switch),
            wall_s=wall_s,
        )


def unsupported(fault: Fault) -> str:
    """Return the reason why virtual time cannot apply a fault while jobs run; "" if it can."""
    match fault:
        case Kill(job=job, rank=rank):
            return (
                f"kill of rank {rank} of job {job!r}: virtual time has no processes that could die; use a"
                " runner with processes (loopback, netns, mininet)"
            )
        case LinkFault(kind=kind) if kind != "loss":
            return (
                f"{kind} of the link {'-'.join(fault.link)}: while jobs run, virtual time changes only loss"
            )
        case RestartJob(removed_at_once=False) | Congest() | Strangers():
            return f"{fault}: only the soak supports such faults"
    return ""


def _in_turn(faults: Iterable[Fault]) -> Iterator[TimedFault]:
    """Yield the faults and, after each temporary loss of a link, a fault that ends this loss."""
    for fault in faults:
        assert not isinstance(fault, Kill)
        yield fault
        if isinstance(fault, LinkFault) and fault.for_s < math.inf:
            yield replace(fault, at_s=fault.at_s + fault.for_s, value=0.0)


@contextmanager
def _spared_from_collection() -> Iterator[None]:
    """Exempt the existing objects from garbage collection: a large network has many, and all are needed."""
    if gc.get_freeze_count():  # an earlier freeze stays
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
