"""Small networks with jobs on them, each packet of which meets the same few slots."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bmv2_topos.soak.bed import BuiltBed, Rack
from bmv2_topos.soak.programs import LANES
from bmv2_topos.soak.schedule import Bed, JobPlan
from bmv2_topos.testbeds.virtual.placement import Placement
from bmv2_topos.testbeds.virtual.server import endpoints
from controller.vocabulary import Link, Mode, Region, Server, Switch, Topology
from hostlib import wire
from hostlib.core.congestion import window_for
from hostlib.core.state import CoreSettings
from hostlib.core.window import Window
from hostlib.fallback.config import FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree
from tests.controller import single
from tests.system.model_check_explorer import Budget, Explored, Explorer
from tests.system.model_check_parts import Automaton, Packets, Part, ServerPart, SwitchPart, WorkerPart
from tests.twins.fallback_core import NumpyCore
from tests.twins.kernel import NumpyKernel

MOST = 400_000
"""States. More would take too long, and mean that clocks have got into the states."""
ONE_SLOT = Region(0, 1)


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs on a chain of switches, of two workers each by default, and how many mishaps there may be."""

    psns: int
    """Packets that each job sums."""
    budget: Budget
    program: Mode = "shared"
    switches: tuple[str, ...] = ("s1",)
    """The root first; the fallback server is there."""
    places: tuple[str, ...] = ()
    """Switch of each worker of a job; empty: two, both at the last."""
    target: int = wire.TARGET_ALL
    """The rank that takes the sum; all others have to learn that it is complete."""
    jobs: tuple[tuple[int, bool], ...] = ((0, False),)
    """Of each its priority, and whether it may preempt."""
    in_flight: int = 2
    """Packets of a worker that may be without a result."""
    region: Region = ONE_SLOT
    """Of all jobs in shared mode; of the only one in exclusive mode."""
    other_region: Region = ONE_SLOT
    """What a change gives job 1 at a switch instead."""
    ages: bool = False
    """Slots are too old as soon as nothing is under way any more."""

    psns_under_way: int | None = None
    """Range of the PSNs that a worker may have under way; None: as `in_flight` has it."""
    memory: int = 100
    """Of the fallback server, in packets."""

    @property
    def window(self) -> int:
        """Range of the PSNs that a worker may have under way."""
        if self.psns_under_way is not None:
            return self.psns_under_way
        return self.in_flight if self.program == "exclusive" else window_for(self.in_flight)

    @property
    def racks(self) -> tuple[str, ...]:
        """The switch of each worker of a job."""
        return self.places or (self.switches[-1],) * 2

    @property
    def bed(self) -> Bed:
        """The network."""
        shared = self.program == "shared"
        server = "p" if shared else None
        links = [Link(above, below) for above, below in itertools.pairwise(self.switches)]
        ranks = range(len(self.racks))
        hosts_of = [[f"h{job}.{rank}" for rank in ranks] for job in range(1, len(self.jobs) + 1)]
        placements = [Placement(tuple(hosts), server) for hosts in hosts_of]
        workers = [host for placement in placements for host in placement.workers]
        links += [
            Link(host, rack) for of_job in hosts_of for host, rack in zip(of_job, self.racks, strict=True)
        ]
        links += [Link("p", self.switches[0])] if shared else []
        hosts = tuple(map(Server, [*workers, "p"] if shared else workers))
        topology = Topology(tuple(map(Switch, self.switches)), hosts, tuple(links))
        slots = 0 if shared else self.region.size
        return Bed(0, self.program, topology, tuple(placements), {}, (slots,) * len(self.jobs))


def explore(case: Case, rack: Rack) -> Explored:
    """Explore all that can happen in a case."""
    bed = case.bed
    with BuiltBed(bed, rack) as built:
        built.prepare({job: _plan(case, job) for job in range(1, len(case.jobs) + 1)})
        slots = range(max(case.region.end, case.other_region.end))
        parts: dict[str, Part] = {
            name: SwitchPart(built, name, slots, change=_change(case, built, name), ages=case.ages)
            for name in case.switches
        }
        sent: Packets = ()
        for job, placement in enumerate(bed.placements, start=1):
            for host, worker in zip(placement.workers, _workers(case, built, job), strict=True):
                parts[host] = worker
                sent += worker.sent_first
        server = bed.placements[0].server
        if server is not None:
            parts[server] = _server(case, built, server)
        automata = {name: Automaton(part) for name, part in parts.items()}
        workers = [host for placement in bed.placements for host in placement.workers]
        return Explorer(automata, workers, server, case.switches, sent).explore(case.budget, most=MOST)


def _plan(case: Case, job: int) -> JobPlan:
    preempts = case.jobs[job - 1][1]
    region = case.region if case.program == "shared" else None
    age_us = 100_000
    return JobPlan(*(job, job << 16 | job, case.window, region, preempts, age_us), "fixed", "exponent", 0, ())


def _change(case: Case, built: BuiltBed, switch: str) -> Callable[[], None]:
    """Return what gives job 1 other slots at a switch."""

    def change() -> None:
        admitted = built.fleet.jobs[1].switches[switch]
        single.move(built.fleet.controllers[switch], admitted, case.other_region)

    return change


def _workers(case: Case, built: BuiltBed, job: int) -> list[WorkerPart]:
    admitted = built.fleet.jobs[job]
    length = (case.psns - 1) * LANES + 1
    ranks = len(case.racks)
    inputs = [np.arange(1, length + 1, dtype=np.int32) << 8 * rank + job for rank in range(ranks)]
    total = np.sum(inputs, axis=0, dtype=np.int32)
    parts = []
    for rank, host in enumerate(built.bed.placements[job - 1].workers):
        settings = CoreSettings(
            *(job, rank, ranks, 2 * case.window, LANES, endpoints(built.bed.topology, host)),
            tree=Tree.of(admitted.tree),
            epoch=admitted.epoch,
            window=case.window,
            fallback=case.program == "shared",
        )
        switch, port, _ = built.host_ports[host]
        parts.append(
            WorkerPart(
                *(Window(settings, NumpyKernel()), inputs[rank]),
                total if case.target in (rank, wire.TARGET_ALL) else np.zeros_like(total),
                *(switch, port),
                priority=case.jobs[job - 1][0],
                target=case.target,
            )
        )
    return parts


def _server(case: Case, built: BuiltBed, host: str) -> ServerPart:
    core = NumpyCore(FallbackSettings(LANES, endpoints(built.bed.topology, host), case.memory))
    for job, admitted in built.fleet.jobs.items():
        core.add_job(FallbackJob(job, admitted.epoch, Tree.of(admitted.tree), window=case.window))
    switch, port, _ = built.host_ports[host]
    return ServerPart(core, switch, port)
