"""Speed of jobs that contend for links and slots: a speed model that knows where each job is placed.

A family's own model determines how fast jobs run on their GPUs; the time of their gradients beside those of
other jobs is added. The core decides places and slots (`controller.core.allocation`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from controller.core.allocation import Allocation
from controller.core.allocator import Allocator
from controller.core.compose import LEAST_S
from controller.errors import BadSpec
from controller.policies.by_kind import AllocationSettings
from controller.policies.placement.waterfill import waterfill
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Contention, Group, JobState, SpeedModel
from controller.simulator.network.average import Work, average, crowded, link_rates, run_lengths, usable
from controller.simulator.network.fluid import Fluid, FluidJob, Phases, Rates, phases_of, shifted
from controller.simulator.network.log import NetworkLog
from controller.vocabulary import Job

# ---------------------------------------------------------------------------
# How a cluster's network is simulated, and by which policies.


Model = Literal["phases", "average"]
MODELS: tuple[Model, ...] = ("phases", "average")

WINDOW = 128
"""Packets in flight: the first so many of a tensor only announce the exponents of those that follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings(AllocationSettings):
    """Settings of the network's model, beside those of the allocation policies.

    Attributes:
        model: Jobs' phases one by one, or on average over time.
        window: Packets in flight of a worker: each tensor is sent with as many packets more, at most as many
            as it has, which announce exponents; 0: none are sent. Its last sum is back a round trip later.
        resent: Fraction of a full link's capacity that is retransmissions, for each job beside the first:
            queues make round trips longer, and late packets are taken for lost.
        tensors: Most tensors of a job; further layers are merged.
        iterations: Iterations that are simulated in phases; the rest is taken to be like them.
    """

    model: Model = "average"
    window: int = WINDOW
    resent: float = 0.0
    tensors: int = 8
    iterations: int = 32

    def __post_init__(self) -> None:
        AllocationSettings.__post_init__(self)  # super() knows no class that slots have made anew
        if not 0 <= self.resent < 1:
            raise BadSpec(f"a part of {self.resent:g} sent again; want a fraction, 0 to 1")
        if self.model not in MODELS:
            raise BadSpec(f"model {self.model!r}; want one of {', '.join(MODELS)}")


_SAME = 1e-9


class NetworkSpeed:
    """`ContendedSpeed` of the jobs that an `Allocation` has given servers, trees and slots; for one run.

    `crowded` has the names of jobs that have shared too few slots for this model; see `collisions`.
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
        self._network = _Average(settings) if settings.model == "average" else _InPhases(settings)

    def alone_s(self, job: Submission) -> float:
        """Return the seconds per iteration alone by the family's model."""
        return self._inner.alone_s(job)

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the members' seconds per iteration by the family's model; `contend` corrects them."""
        return self._inner.iteration_s(group)

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the members' costs of a start, in seconds, by the family's model."""
        return self._inner.restart_s(group)

    def contend(self, now_s: float, groups: Sequence[Group]) -> Contention:
        """Solve the rates of all jobs that use the network."""
        allocation = self._allocation
        moved, self._changes = self._changes != allocation.changes, allocation.changes
        if moved or self._network.goes_on:
            crossing = self._allocator.crossing
            self._phases = {job.name: self._phases_of(job) for job in crossing}
            self._states = [allocation.state(job.name) for job in crossing]
            works = [self._work(state) for state in self._states]
            self._found = self._network.solve(
                now_s, self._allocator, crossing, works, self._states, moved=moved
            )
        if moved:
            self.crowded |= {crossing[number].name for number in self._network.crowded}
        if self._log is not None and moved:
            rates = self._network.rates
            self._log.rates(now_s, {job.name: rates.get(job.name, math.inf) for job in crossing})
        changed = [
            (job, iteration_s)
            for job, iteration_s in zip(self._states, self._found, strict=True)
            if not math.isclose(iteration_s, job.iteration_s, rel_tol=_SAME)
        ]
        return Contention(changed)

    def _phases_of(self, placed: Job) -> tuple[Job, Phases]:
        """Return a job with the phases of its iterations where it is."""
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
        """Return the phases of an iteration, those of a group's member as its partners let it be."""
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
        """Bits sent in addition with each tensor, at most as many as it has."""
        payload = min(switch.payload_bytes for switch in self._allocator.topology.switches)
        return self._settings.window * payload * 8.0

    @property
    def _fastest_bps(self) -> float:
        return self._allocator.topology.fastest_bps


class _Average:
    """Iterations on average over time: the same until places or slots change."""

    goes_on = False

    def __init__(self, settings: NetworkSettings) -> None:
        self.rates: dict[str, float] = {}
        self.crowded: Sequence[int] = ()
        self._resent = settings.resent

    def solve(
        self,
        now_s: float,
        allocator: Allocator,
        jobs: Sequence[Job],
        phases: Sequence[Phases],
        states: Sequence[JobState],
        *,
        moved: bool,
    ) -> Sequence[float]:
        """Return the time of an iteration of each job."""
        work = Work(
            np.array([each.ready_s[0] for each in phases]),
            np.array([each.compute_s - each.ready_s[0] for each in phases]),
            np.array([each.latency_s * len(each.bits) for each in phases]),
            np.array([each.total_bits for each in phases]),
        )
        flows = allocator.flows()
        link_bps = link_rates(flows, np.ones(len(jobs), dtype=bool), self._resent)
        runs = run_lengths(flows)
        self.crowded = crowded(runs, flows).tolist()
        rates = average(replace(flows, link_bps=link_bps), work, runs) if jobs else np.zeros(0)
        self.rates = {job.name: float(rate) for job, rate in zip(jobs, rates, strict=True)}
        return [
            each.iteration_s(float(rate)) if rate > 0 else math.inf
            for each, rate in zip(phases, rates, strict=True)
        ]


class _InPhases:
    """Iterations phase by phase, as far as the next end."""

    goes_on = True

    def __init__(self, settings: NetworkSettings) -> None:
        self.rates: dict[str, float] = {}
        self.crowded: Sequence[int] = ()
        self._settings = settings
        self._fluid = Fluid(0.0, {})
        self._horizon_s = 0.0
        self._solve_rates: Rates = _no_rates

    def solve(
        self,
        now_s: float,
        allocator: Allocator,
        jobs: Sequence[Job],
        phases: Sequence[Phases],
        states: Sequence[JobState],
        *,
        moved: bool,
    ) -> Sequence[float]:
        """Return the times of an iteration with which each job ends when its phases have it end."""
        self._come_to(now_s, {job.name: state for job, state in zip(jobs, states, strict=True)})
        known = self._fluid.runners
        self._fluid.runners = {
            job.name: known.get(job.name) or self._fresh(each, state, now_s)
            for job, each, state in zip(jobs, phases, states, strict=True)
        }
        if moved:
            solve_rates = _Rates(allocator, jobs, self._settings.resent)
            self._solve_rates, self.crowded = solve_rates, solve_rates.crowded
            self.rates = dict(solve_rates(frozenset(job.name for job in jobs)))
        for job, each in zip(jobs, phases, strict=True):
            runner, rate_bps = self._fluid.runners[job.name], self.rates[job.name]
            runner.phases = each
            runner.likely_s = each.iteration_s(rate_bps) if rate_bps > 0 else math.inf
        ahead = self._fluid.copy()
        ahead.run(self._solve_rates, math.inf, iterations=self._settings.iterations, to_first_end=True)
        self._horizon_s = ahead.now_s
        return [
            _iteration_s(ahead.runners[job.name].end_s(ahead.now_s), now_s, state)
            for job, state in zip(jobs, states, strict=True)
        ]

    def _come_to(self, now_s: float, states: Mapping[str, JobState]) -> None:
        """Advance the fluid to this time; beyond the simulated iterations, jobs keep their last positions."""
        fluid = self._fluid
        fluid.run(self._solve_rates, min(now_s, self._horizon_s))
        late_s, fluid.now_s = now_s - fluid.now_s, now_s
        if late_s > _SAME * now_s:  # less is rounding: the event that was looked ahead to
            shifted(fluid.runners.values(), late_s)
            for name, runner in fluid.runners.items():
                if name in states:
                    runner.left = _whole(states[name].iterations_left(now_s))

    @staticmethod
    def _fresh(phases: Phases, state: JobState, now_s: float) -> FluidJob:
        begin_s = max(now_s, state.working_since_s())
        left = _whole(state.iterations_left(now_s))
        return FluidJob(phases, left, begin_s, due_s=begin_s)


def _whole(iterations: float) -> int:
    return max(1, math.ceil(iterations - 1e-6))


def _iteration_s(end_s: float, now_s: float, state: JobState) -> float:
    """Return the time of an iteration with which a job ends at `end_s`."""
    work_s = end_s - max(now_s, state.working_since_s())
    return max(work_s / max(state.iterations_left(now_s), 1e-9), LEAST_S)


def _no_rates(senders: frozenset[str]) -> Mapping[str, float]:
    return {}


class _Rates:
    """Rates of jobs that send at the same time; each set is solved once."""

    def __init__(self, allocator: Allocator, jobs: Sequence[Job], resent: float) -> None:
        self._flows = allocator.flows()
        self._resent = resent
        self._names = [job.name for job in jobs]
        self._sums = np.flatnonzero(self._flows.pool >= 0)
        self._parts = run_lengths(self._flows)
        self.crowded: Sequence[int] = crowded(self._parts, self._flows).tolist()
        self._known: dict[frozenset[str], Mapping[str, float]] = {}

    def __call__(self, senders: frozenset[str]) -> Mapping[str, float]:
        if senders not in self._known:
            flows = self._flows
            sends = np.array([name in senders for name in self._names], dtype=bool)
            limits = np.where(sends, flows.limit_bps, 0.0)
            here = self._sums[sends[flows.job[self._sums]]]
            part = usable(self._parts[here], flows.pool[here], len(flows.pool_bps))
            link_bps = link_rates(flows, sends, self._resent)
            there = replace(flows, link_bps=link_bps, limit_bps=limits, pool_bps=part * flows.pool_bps)
            rates = waterfill(there).rate_bps
            self._known[senders] = {
                name: float(rate) for name, rate in zip(self._names, rates, strict=True) if name in senders
            }
        return self._known[senders]
