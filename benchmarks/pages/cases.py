"""Scenarios that are run twice: packet by packet in the virtual testbed, and as flows.

Nothing is fitted to a scenario: what the flows know of packets is the frame's size, the window, and a round
trip, from the topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bmv2_topos.testbeds.virtual import Placement, VirtualSettings, VirtualTestbed, build
from bmv2_topos.testbeds.virtual.allocation import Allocation, View
from bmv2_topos.testbeds.virtual.report import JobReport
from controller.policies.by_kind import FRAME_BYTES
from controller.policies.memory.demand import Reading
from controller.policies.memory.policy import Question
from controller.policies.registry import MEMORIES
from controller.simulator.network.run import Simulated, simulate_network
from controller.simulator.network.speed import NetworkSettings
from controller.vocabulary import Job, Region, Topology
from controller.vocabulary.graphs import with_memory

WINDOW: Final = 64
LANES: Final = 64
COALESCE_S: Final = 5e-6
PAYLOAD_BITS: Final = LANES * 32
RESENT: Final = 0.005
"""Part of the packets of a link that is sent again for each further job that fills it, as counted in the
testbed: see the page cluster-validation."""
FORWARD: Final = 1 / 3
"""Part of computing before gradients can be ready, in the testbed."""


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs on one switch, or on racks (`shape`), with so many slots at each."""

    name: str
    jobs: tuple[Job, ...]
    slots: int
    memory: str = "shared"
    shape: tuple[int, ...] | None = None
    deadlines: tuple[float | None, ...] = ()
    """In seconds."""
    reading: Reading = "measured"

    @property
    def elements(self) -> int:
        """Elements that all workers send."""
        return sum(job.workers * job.iterations * sum(job.tensors) for job in self.jobs)


def alone_s(job: Job) -> float:
    """Return the time of an iteration of a job alone, from its packets."""
    wire_bits = (sum(job.tensors) / LANES + WINDOW) * (LANES * 4 + FRAME_BYTES) * 8
    return job.compute_s * (1 + skew(job)) + wire_bits / 10e9 + 10e-6


def skew(job: Job) -> float:
    """Return by what part of computing the slowest rank is later than on average: each pass is drawn anew."""
    if not job.jitter:
        return 0.0
    draws = np.random.default_rng(0).uniform(-job.jitter, job.jitter, (4096, job.workers, 2))
    passes = draws @ np.array([FORWARD, 1 - FORWARD])
    return float(passes.max(axis=1).mean())


def described(case: Case) -> tuple[list[Job], Topology, Topology, tuple[Placement, ...]]:
    """Return a scenario's jobs and cluster as files would describe them, and the testbed's."""
    topology, placements = build(case.jobs, case.shape, servers=True)
    depth = 2 if case.shape else 1
    rtt_s = 2 * depth * 2 * topology.links[0].delay_s + COALESCE_S
    plain = with_memory(topology, slots=case.slots, gpus=1)
    cluster = replace(
        plain, switches=tuple(replace(each, lanes=LANES, rtt_s=rtt_s) for each in plain.switches)
    )
    held_s = WINDOW * (PAYLOAD_BITS + FRAME_BYTES * 8) / topology.links[0].rate_bps
    deadlines = case.deadlines or (None,) * len(case.jobs)
    jobs = [
        _job(entry, placement, deadline_s, held_s)
        for entry, placement, deadline_s in zip(case.jobs, placements, deadlines, strict=True)
    ]
    return jobs, cluster, topology, placements


def _job(entry: Job, placement: Placement, deadline_s: float | None, held_s: float) -> Job:
    """Return a job; a skewed one holds its slots for as long as its whole window takes on the link."""
    layers = len(entry.tensors)
    return Job(
        name=entry.name,
        workers=entry.workers,
        layers_bytes=tuple(4 * elements for elements in entry.tensors),
        iterations=entry.iterations,
        compute_s=entry.compute_s,
        overlap=(1 - FORWARD) * (1 - 1 / layers),
        arrival_s=entry.arrival_s,
        deadline_s=deadline_s,
        skew_s=skew(entry) * entry.compute_s,
        hold_s=held_s if entry.jitter else PAYLOAD_BITS / 10e9,
        servers=placement.workers,
        fallback=placement.server,
    )


def as_flows(case: Case, model: str) -> Simulated:
    """Run a scenario in the flow-level simulator."""
    jobs, cluster, _, _ = described(case)
    settings = NetworkSettings(
        memory=case.memory,
        model="phases" if model == "phases" else "average",
        reading=case.reading,
        window=WINDOW,
        resent=RESENT,
        iterations=10**6,
        period_s=0.0,
        margin=0.0,
    )
    return simulate_network(jobs, cluster, "fifo-backfill", settings)


def as_packets(case: Case) -> dict[str, JobReport]:
    """Run a scenario packet by packet; return what became of the jobs that were done."""
    jobs, cluster, topology, placements = described(case)
    settings = VirtualSettings(slots=max(case.slots, 1), lanes=LANES, samples=0)
    policy = _Divide(case, jobs, cluster)
    allocation = None if case.memory == "shared" else Allocation(policy, period_s=50e-6)
    report = VirtualTestbed(topology, case.jobs, placements, settings, allocation=allocation).run()
    return {job.name: job for job in report.jobs if job.jct_s is not None}


class _Divide:
    """Has the testbed's controllers do what a memory policy says, when jobs come or go."""

    def __init__(self, case: Case, jobs: Sequence[Job], topology: Topology) -> None:
        self._case = case
        self._jobs = {job.name: job for job in jobs}
        self._topology = topology
        self._seen: tuple[str, ...] = ()
        self._held: dict[str, dict[str, Region]] = {}

    def __call__(self, view: View) -> dict[str, dict[str, Region]]:
        names = tuple(view.jobs)
        if names == self._seen:
            return {}
        self._seen = names
        told = []
        for name, seen in view.jobs.items():
            job = self._jobs[name]
            left = max(1, seen.job.iterations - seen.iterations_done)
            late = job.due_s is not None and job.due_s <= view.time_s
            told.append(replace(job, iterations=left, deadline_s=None if late else job.deadline_s))
        question = Question(tuple(told), self._topology, view.time_s, self._case.reading, self._held)
        answer = MEMORIES[self._case.memory](question)
        self._held = {name: dict(regions) for name, regions in answer.regions.items()}
        return {
            name: {at: self._held[name].get(at, Region(0, 0)) for at in view.jobs[name].regions}
            for name in names
        }
