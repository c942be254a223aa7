"""Speed of jobs that contend for links and slots: a speed model that knows where each job is placed.

A family's own model determines how fast jobs run on their GPUs; the time of their gradients beside other
jobs' gradients is added. The core decides places and slots (`controller.core.allocation`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.core.allocation import Allocation
from controller.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Group, JobState, SpeedModel
from controller.policies.settings import AllocationSettings
from controller.simulator.network.average import (
    Phases,
    Work,
    average,
    crowded,
    link_rates,
    phases_of,
    run_lengths,
)
from controller.simulator.network.log import NetworkLog
from controller.vocabulary import Job

# ---------------------------------------------------------------------------
# How a cluster's network is simulated, and by which policies.


WINDOW = 128
"""Default of `NetworkSettings.window`, in packets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings(AllocationSettings):
    """Settings of the network's model, beside the allocation policies' settings.

    Attributes:
        window: Maximum number of a worker's packets in flight. Before each tensor, a worker sends packets
            that only announce exponents: `window` packets or, for a smaller tensor, one for each of its
            packets. 0: no such packets.
        resent: Fraction of a full link's capacity that is retransmissions, for each job after the first:
            queues make round trips longer, and late packets count as lost.
        tensors: Maximum number of tensors of a job; further layers are merged.
    """

    window: int = WINDOW
    resent: float = 0.0
    tensors: int = 8

    def __post_init__(self) -> None:
        AllocationSettings.__post_init__(self)  # super() fails in a class that slots=True has replaced
        if not 0 <= self.resent < 1:
            raise BadSpec(f"resent is {self.resent:g}; want a fraction, from 0 to below 1")


_SAME = 1e-9


class NetworkSpeed:
    """Speed model of jobs that contend for links and slots, for one run.

    An `Allocation` gives these jobs servers, trees and slots. Iteration times are averages over time: they
    are constant until places or slots change. `crowded` has the names of jobs that have shared too few slots
    for this model (`average.TOO_LONG`).
    """

    def __init__(
        self,
        inner: SpeedModel,
        allocation: Allocation,
        settings: NetworkSettings,
        log: NetworkLog | None = None,
    ) -> None:
        self._inner = inner
        self._allocation = allocation
        self._allocator = allocation.allocator
        self._settings = settings
        self._log = log
        self._changes = 0
        self.crowded: set[str] = set()
        self._phases: dict[str, tuple[Job, Phases]] = {}
        self._states: list[JobState] = []  # of the jobs that use the network, and their iterations
        self._found: Sequence[float] = ()

    def alone_s(self, job: Submission) -> float:
        """Return the time of one iteration of a job alone, in seconds, by the scheduler's speed model."""
        return self._inner.alone_s(job)

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return each member's seconds per iteration without the network, by the scheduler's speed model."""
        return self._inner.iteration_s(group)

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return each member's cost of a start, in seconds, by the scheduler's speed model."""
        return self._inner.restart_s(group)

    def contend(self, now_s: float) -> Sequence[tuple[JobState, float]]:
        """Return the jobs whose speeds change with places or slots, with seconds per iteration."""
        allocation = self._allocation
        if self._changes != allocation.changes:
            self._changes = allocation.changes
            crossing = self._allocator.crossing
            self._phases = {job.name: self._phases_of(job) for job in crossing}
            self._states = [allocation.state(job.name) for job in crossing]
            self._found = self._solve(now_s, crossing, [self._work(state) for state in self._states])
        return [
            (job, iteration_s)
            for job, iteration_s in zip(self._states, self._found, strict=True)
            if not math.isclose(iteration_s, job.iteration_s, rel_tol=_SAME)
        ]

    def _solve(self, now_s: float, jobs: Sequence[Job], phases: Sequence[Phases]) -> Sequence[float]:
        """Return the seconds per iteration of each job that result from contention."""
        work = Work(
            np.array([each.ready_s[0] for each in phases]),
            np.array([each.compute_s - each.ready_s[0] for each in phases]),
            np.array([each.latency_s * len(each.bits) for each in phases]),
            np.array([each.total_bits for each in phases]),
        )
        flows = self._allocator.flows()
        runs = run_lengths(flows)
        self.crowded |= {jobs[number].name for number in crowded(runs, flows).tolist()}
        link_bps = link_rates(flows, self._settings.resent)
        rates = average(replace(flows, link_bps=link_bps), work, runs).tolist() if jobs else []
        if self._log is not None:
            self._log.rates(now_s, {job.name: rate for job, rate in zip(jobs, rates, strict=True)})
        return [
            each.iteration_s(rate) if rate > 0 else math.inf for each, rate in zip(phases, rates, strict=True)
        ]

    def _phases_of(self, placed: Job) -> tuple[Job, Phases]:
        """Return the placed job and the phases of its iterations on its present servers."""
        known = self._phases.get(placed.name)
        if known is not None and known[0] is placed:
            return known
        return placed, phases_of(
            placed,
            latency_s=self._allocator.latency_s(placed),
            announced_bits=self._announced_bits,
            most=self._settings.tensors,
        )

    def _work(self, job: JobState) -> Phases:
        """Return the phases of a job's iteration, which depend on the other jobs of its group."""
        group = job.group
        assert group is not None
        placed, phases = self._phases[job.spec.name]
        if len(group.jobs) + len(group.neighbours) == 1:
            return phases
        round_s = self._inner.iteration_s(group)[group.jobs.index(job)]
        alone_s = placed.model_bytes * 8 / self._fastest_bps
        before_s = max(0.0, round_s - alone_s)
        return replace(phases, compute_s=before_s, ready_s=(before_s,) * len(phases.bits))

    @property
    def _announced_bits(self) -> float:
        """Maximum number of bits that announce the exponents of a tensor: one window of packets."""
        payload = min(switch.payload_bytes for switch in self._allocator.topology.switches)
        return self._settings.window * payload * 8.0

    @property
    def _fastest_bps(self) -> float:
        return self._allocator.topology.fastest_bps
