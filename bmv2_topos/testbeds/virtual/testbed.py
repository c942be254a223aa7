"""The testbed: all parts together, and the clock that drives them.

Time jumps from one *tick* to the next: to the next moment at which anything is due, but at least
`VirtualSettings.coalesce_us` on. At a tick the switches first catch up; then faults that are due happen; then
every host that has something to do takes in what has arrived and sends what it may. Hosts take turns in going
first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import assert_never

from bmv2_topos.jobfile import JobEntry
from bmv2_topos.spec import Topology
from bmv2_topos.testbeds.virtual.admission import Controller
from bmv2_topos.testbeds.virtual.fabric import Fabric, compiled
from bmv2_topos.testbeds.virtual.faults import (
    ChangeLoss,
    ChangeRegion,
    Fault,
    RemoveJob,
    RestartFallback,
    RestartJob,
    Straggle,
)
from bmv2_topos.testbeds.virtual.jobs import RunningJob, gradients_of, request_of
from bmv2_topos.testbeds.virtual.occupancy import OccupancySampler
from bmv2_topos.testbeds.virtual.placement import Placement
from bmv2_topos.testbeds.virtual.report import Report
from bmv2_topos.testbeds.virtual.server import Server
from bmv2_topos.testbeds.virtual.settings import Stalled, TestbedError, VirtualSettings
from bmv2_topos.testbeds.virtual.stall import check_stall, describe_waiting
from bmv2_topos.testbeds.virtual.worker import Worker
from controller.model import Region
from hostlib.core.kernel import choose_kernel
from hostlib.core.state import NEVER

PROGRAM_SLOTS = 8192
"""Slots that the program is built for, unless more are wanted: fewer are a region of them."""

_PROGRESS_TICKS = 256
_TURN = 7  # any number without a common factor with most numbers of hosts

Progress = Callable[[float, int, int], None]
"""Told of the virtual time (s), iterations done and iterations in all, over all jobs."""


class VirtualTestbed:
    """Jobs on a topology, once: make it, `run` it.

    Raises:
        TestbedError: the jobs cannot run there.
    """

    def __init__(
        self,
        topology: Topology,
        jobs: Sequence[JobEntry],
        placements: Sequence[Placement],
        settings: VirtualSettings | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.topology = topology
        self.settings = settings = settings or VirtualSettings()
        requests = [
            request_of(entry, placement, settings, jobs=len(jobs))
            for entry, placement in zip(jobs, placements, strict=True)
        ]
        self._faults = sorted(faults, key=lambda fault: fault.at_s, reverse=True)
        for fault in faults:
            self._check(fault, jobs)
        program = compiled(settings.program, settings.lanes, max(PROGRAM_SLOTS, settings.slots))
        self.fabric = Fabric(topology, program, seed=settings.seed)
        self.controller = Controller(
            topology,
            self.fabric.switches,
            self.fabric.pipelines,
            program,
            mode=settings.program,
            lanes=settings.lanes,
            slots=settings.slots,
        )
        if settings.ecn_depth is not None:
            self.controller.set_ecn_threshold(settings.ecn_depth)
        kernel = choose_kernel(settings.kernel)
        self.jobs = {
            entry.name: RunningJob(
                entry=entry,
                id=number,
                placement=placement,
                request=request,
                gradients=gradients_of(entry, number, settings),
                settings=settings,
                fabric=self.fabric,
                controller=self.controller,
                kernel=kernel,
                starts_ns=round(entry.start_s * 1e9),
            )
            for number, (entry, placement, request) in enumerate(
                zip(jobs, placements, requests, strict=True), start=1
            )
        }
        self._sampler = OccupancySampler(self.fabric, settings, self.jobs)

    def _check(self, fault: Fault, jobs: Sequence[JobEntry]) -> None:
        if isinstance(fault, ChangeLoss):
            ends = {frozenset((link.a, link.b)) for link in self.topology.links}
            if frozenset((fault.a, fault.b)) not in ends:
                raise TestbedError(f"there is no link {fault.a}-{fault.b}")
        elif fault.job not in {job.name for job in jobs}:
            names = ", ".join(job.name for job in jobs)
            raise TestbedError(f"there is no job {fault.job!r}; there are {names}")

    # ------------------------------------------------------------------ the clock

    def run(self, progress: Progress | None = None) -> Report:
        """Run all jobs to their ends.

        Raises:
            WrongSum: a worker was handed something that is not the sum.
            Stalled: nothing moves any more, or `limit_s` is over.
            controller.ControllerError: the switches cannot take a job.
        """
        began = time.perf_counter()
        fabric, settings = self.fabric, self.settings
        limit_us = round(settings.limit_s * 1e6)
        ticks = 0
        try:
            while not all(job.gone for job in self.jobs.values()):
                now_us = max(fabric.now_us + settings.coalesce_us, self._next_us())
                if now_us > limit_us:
                    waiting = describe_waiting(self.jobs.values())
                    raise Stalled(f"after {settings.limit_s:g} s of virtual time: {waiting}")
                ticks += 1
                self._sampler.sample(now_us * 1000, self._generations())
                fabric.advance(now_us)
                self._tick(now_us * 1000, ticks)
                if progress is not None and ticks % _PROGRESS_TICKS == 0:
                    progress(now_us * 1e-6, *self._progress())
            return self._report(time.perf_counter() - began)
        finally:
            fabric.close()

    def _tick(self, now: int, number: int) -> None:
        for job in self.jobs.values():
            if not job.gone and job.admitted is None and job.starts_ns <= now:
                job.admit(now)
        while self._faults and self._faults[-1].at_s * 1e9 <= now:
            self._happen(self._faults.pop(), now)
        hosts = self._hosts()
        turn = number * _TURN % max(1, len(hosts))
        for host in (*hosts[turn:], *hosts[:turn]):
            host.serve(now)
        for job in self.jobs.values():
            job.end_iterations(now)
        check_stall(self.jobs.values(), now, self.settings.patience_s)

    def _next_us(self) -> int:
        due = [host.due for host in self._hosts()]
        due += [job.starts_ns for job in self.jobs.values() if not job.gone and job.admitted is None]
        if self._faults:
            due.append(round(self._faults[-1].at_s * 1e9))
        next_us = -(-min(due, default=NEVER) // 1000)
        event_us = self.fabric.next_event_us()
        return next_us if event_us is None else min(next_us, event_us)

    def _hosts(self) -> list[Worker | Server]:
        hosts: list[Worker | Server] = []
        for job in self.jobs.values():
            hosts += job.workers
            if job.server is not None:
                hosts.append(job.server)
        return hosts

    def _generations(self) -> dict[int, str]:
        return {
            job.admitted.identity.generation: job.entry.name
            for job in self.jobs.values()
            if job.admitted is not None
        }

    def _progress(self) -> tuple[int, int]:
        jobs = [job for job in self.jobs.values() if not job.removed]
        return sum(len(job.ends_ns) for job in jobs), sum(job.entry.iterations for job in jobs)

    # ------------------------------------------------------------------ faults

    def _happen(self, fault: Fault, now: int) -> None:
        if isinstance(fault, ChangeLoss):
            self.fabric.set_loss(fault.a, fault.b, fault.loss)
            return
        job = self.jobs[fault.job]
        if job.gone or job.admitted is None:
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
                if self.settings.program == "shared":
                    self.controller.resize(job.id, Region(fault.offset, fault.size))
            case Straggle():
                job.workers[fault.rank].training.compute_ns = round(fault.compute_s * 1e9)
            case RemoveJob():
                job.withdraw()
                job.gone = job.removed = True
            case _:
                assert_never(fault)

    # ------------------------------------------------------------------ the report

    def _report(self, wall_s: float) -> Report:
        settings = self.settings
        statistics = [
            switch.statistics(port) for switch in self.fabric.switches.values() for port in switch.ports
        ]
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
            dropped_packets=sum(port.tx_queue_full + port.rx_queue_full for port in statistics),
            lost_packets=sum(port.tx_lost + port.rx_lost for port in statistics) + self.fabric.lost_packets,
            wall_s=wall_s,
        )
