"""Speed of jobs that contend for links and slots: a speed model that knows where each job is placed.

A family's own model says how fast jobs get on with their GPUs; what their gradients take beside those of
others comes on top. The scheduler decides which jobs run on how many GPUs, the placement policy on which
servers. A job whose servers have no room waits on its GPUs' share until there is some.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from controller.core.allocator import Allocator
from controller.placement.waterfill import waterfill
from controller.scheduling.errors import BadDecision
from controller.scheduling.model import Submission
from controller.scheduling.policy import Contention, Group, JobState, SpeedModel
from controller.simulator.network.average import Work, average
from controller.simulator.network.collisions import run_lengths, usable
from controller.simulator.network.fluid import Fluid, Rates, Runner, shifted
from controller.simulator.network.log import Log
from controller.simulator.network.phases import Phases, phases_of
from controller.simulator.network.resends import link_rates
from controller.simulator.network.settings import NetworkSettings
from controller.vocabulary import Cluster as Servers
from controller.vocabulary import Job

_SAME = 1e-9


class NetworkSpeed:
    """`ContendedSpeed` of `jobs`, by name, on the allocator's cluster; belongs to one run."""

    def __init__(
        self,
        inner: SpeedModel,
        jobs: Mapping[str, Job],
        servers: Servers,
        allocator: Allocator,
        settings: NetworkSettings,
        *,
        own_places: bool,
        log: Log | None = None,
    ) -> None:
        """`own_places`: the scheduler's GPUs are those of `servers`, and say where a job is."""
        self._inner = inner
        self._jobs = jobs
        self._servers = servers
        self._allocator = allocator
        self._settings = settings
        self._own_places = own_places
        self._log = log
        self._places: dict[tuple[int, ...], tuple[str, ...]] = {}
        self._of: dict[str, tuple[int, ...]] = {}
        self._phases: dict[str, Phases] = {}
        self._due_s = math.inf
        self._network = _Average(settings) if settings.model == "average" else _InPhases(settings)

    def alone_s(self, job: Submission) -> float:
        """Return what the family's model says."""
        return self._inner.alone_s(job)

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return what the family's model says; `contend` follows."""
        return self._inner.iteration_s(group)

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return what the family's model says."""
        return self._inner.restart_s(group)

    def contend(self, now_s: float, groups: Sequence[Group]) -> Contention:
        """Place what has started, divide memory if it is time, and solve all rates."""
        running = {job.spec.name: (job, group) for group in groups for job in group.jobs}
        moved = self._take_away(running)
        fresh = [name for name in running if name not in self._of]
        moved |= self._place(now_s, list({id(running[name][1]): running[name][1] for name in fresh}.values()))
        crossing = self._allocator.crossing
        ended: list[JobState] = []
        if moved or (crossing and now_s >= self._due_s):
            left = {job.name: running[job.name][0].iterations_left(now_s) for job in crossing}
            ended = [running[name][0] for name in self._allocator.divide(now_s, left)]
            self._note(now_s)
            moved = True
        changed = self._solve(now_s, running, fresh, moved=moved)
        if now_s >= self._due_s or self._due_s == math.inf:
            self._due_s = now_s + self._settings.period_s if self._settings.period_s else math.inf
        gone = {job.spec.name for job in ended}
        kept = [(job, iteration_s) for job, iteration_s in changed if job.spec.name not in gone]
        return Contention(kept, self._due_s if crossing else math.inf, ended)

    def _take_away(self, running: Mapping[str, tuple[JobState, Group]]) -> bool:
        """Forget the jobs that run no more, or elsewhere; return whether the network is another for it."""
        gone = [
            name for name, gpus in self._of.items() if name not in running or running[name][1].gpus != gpus
        ]
        crossed = False
        for name in gone:
            crossed |= self._allocator.crosses(name)
            self._allocator.stop(name)
            self._phases.pop(name, None)
            del self._of[name]
        if gone:
            used = {group.gpus for _, group in running.values()}
            for gpus in [gpus for gpus in self._places if gpus not in used]:
                del self._places[gpus]
        return crossed

    def _place(self, now_s: float, fresh: Sequence[Group]) -> bool:
        """Find servers for groups with jobs that have none; return whether the network is another for it."""
        if not fresh:
            return False
        if self._own_places:
            self._put_where_gpus_are(fresh)
        else:
            self._ask_for_places(fresh)
        started = [job.spec.name for group in fresh for job in group.jobs if job.spec.name in self._of]
        if self._log is not None:
            for name in started:
                self._log.placed(now_s, self._allocator.placed[name])
        return any(self._allocator.crosses(name) for name in started)

    def _put_where_gpus_are(self, groups: Iterable[Group]) -> None:
        for group in groups:
            names = [self._servers.servers[self._servers.node_of[gpu]].name for gpu in group.gpus]
            for job in group.jobs:
                if job.spec.name not in self._of:
                    self._put(job, group, names, guest=True)

    def _ask_for_places(self, groups: Iterable[Group]) -> None:
        if shared := [group for group in groups if group.neighbours]:
            raise BadDecision(
                f"{shared[0].jobs[0]} shares some of its GPUs only; placement {self._settings.placement!r}"
                " cannot do that, the scheduler's own (placement 'scheduler') can"
            )
        hosts = {group.gpus: group for group in groups if group.gpus not in self._places}
        batch = {group.jobs[0].spec.name: group for group in hosts.values()}
        for name in self._allocator.start([self._jobs[name] for name in batch]):
            gpus = batch[name].gpus
            placed = self._allocator.placed[name]
            self._places[gpus] = tuple(
                server for server in placed.servers for _ in range(placed.gpus_per_worker)
            )
            self._of[name] = gpus
        for group in groups:
            if group.gpus in self._places:
                for job in group.jobs:
                    if job.spec.name not in self._of:
                        self._put(job, group, self._places[group.gpus], guest=True)

    def _put(self, job: JobState, group: Group, names: Sequence[str], *, guest: bool) -> None:
        """Have a job run on the servers of its group's GPUs."""
        described = self._jobs[job.spec.name]
        self._allocator.put(described, names[:: described.gpus_per_worker][: described.workers], guest=guest)
        self._of[job.spec.name] = group.gpus

    def _note(self, now_s: float) -> None:
        if self._log is not None:
            question, answer = self._allocator.question, self._allocator.answer
            assert question is not None
            assert answer is not None
            self._log.divided(now_s, question, answer)

    def _solve(
        self,
        now_s: float,
        running: Mapping[str, tuple[JobState, Group]],
        fresh: Sequence[str],
        *,
        moved: bool,
    ) -> list[tuple[JobState, float]]:
        """Return the jobs whose iterations take another time now; `fresh` had no servers before."""
        crossing = self._allocator.crossing
        works = [self._work(*running[job.name], job) for job in crossing]
        states = [running[job.name][0] for job in crossing]
        found = dict(
            zip(
                (job.name for job in crossing),
                self._network.solve(now_s, self._allocator, crossing, works, states, moved=moved),
                strict=True,
            )
        )
        if self._log is not None and moved:
            self._log.rates(now_s, {name: self._network.rates.get(name, math.inf) for name in found})
        changed = []
        for name in dict.fromkeys((*found, *fresh)):
            job, group = running[name]
            if name in found:
                iteration_s = found[name]
            elif name not in self._of:
                iteration_s = math.inf
            elif job.iteration_s == math.inf:  # it had waited for room
                iteration_s = self._inner.iteration_s(group)[group.jobs.index(job)]
            else:
                continue  # it stays on one server: the family's model has said it all
            if not math.isclose(iteration_s, job.iteration_s, rel_tol=_SAME):
                changed.append((job, iteration_s))
        return changed

    def _work(self, job: JobState, group: Group, placed: Job) -> Phases:
        """Return the phases of an iteration, those of a group's member as its partners let it be."""
        phases = self._phases.get(placed.name)
        if phases is None:
            latency_s = self._allocator.latency_s(placed)
            phases = phases_of(
                placed,
                latency_s=latency_s,
                announced_bits=self._announced_bits,
                most=self._settings.tensors,
            )
            self._phases[placed.name] = phases
        if len(group.jobs) + len(group.neighbours) == 1:
            return phases
        round_s = self._inner.iteration_s(group)[group.jobs.index(job)]
        alone_s = self._jobs[job.spec.name].model_bytes * 8 / self._fastest_bps
        before_s = max(0.0, round_s - alone_s)
        return replace(phases, compute_s=before_s, ready_s=(before_s,) * len(phases.bits))

    @property
    def _announced_bits(self) -> float:
        """Bits that each tensor is sent with beside its own, if it has as many."""
        payload = min(switch.payload_bytes for switch in self._allocator.cluster.switches)
        return self._settings.window * payload * 8.0

    @property
    def _fastest_bps(self) -> float:
        return max(link.rate_bps for link in self._allocator.cluster.links)


LEAST_S = 1e-6
"""Least time of an iteration."""


class _Average:
    """Iterations on average over time."""

    def __init__(self, settings: NetworkSettings) -> None:
        self.rates: dict[str, float] = {}
        self._resent = settings.resent
        self._iterations: list[float] = []

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
        if moved:
            work = Work(
                np.array([each.ready_s[0] for each in phases]),
                np.array([each.compute_s - each.ready_s[0] for each in phases]),
                np.array([each.latency_s * len(each.bits) for each in phases]),
                np.array([each.total_bits for each in phases]),
            )
            flows = allocator.flows()
            link_bps = link_rates(flows, np.ones(len(jobs), dtype=bool), self._resent)
            rates = average(replace(flows, link_bps=link_bps), work) if jobs else np.zeros(0)
            self.rates = {job.name: float(rate) for job, rate in zip(jobs, rates, strict=True)}
            self._iterations = [
                each.iteration_s(float(rate)) if rate > 0 else math.inf
                for each, rate in zip(phases, rates, strict=True)
            ]
        return self._iterations


class _InPhases:
    """Iterations phase by phase, as far as the next end."""

    def __init__(self, settings: NetworkSettings) -> None:
        self.rates: dict[str, float] = {}
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
            self._solve_rates = _Rates(allocator, jobs, self._settings.resent)
            self.rates = dict(self._solve_rates(frozenset(job.name for job in jobs)))
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
        """Bring the fluid to this time; beyond what was looked at, everybody is where he was there."""
        fluid = self._fluid
        fluid.run(self._solve_rates, min(now_s, self._horizon_s))
        late_s, fluid.now_s = now_s - fluid.now_s, now_s
        if late_s > _SAME * now_s:  # less is rounding: the event that was looked ahead to
            shifted(fluid.runners.values(), late_s)
            for name, runner in fluid.runners.items():
                if name in states:
                    runner.left = _whole(states[name].iterations_left(now_s))

    @staticmethod
    def _fresh(phases: Phases, state: JobState, now_s: float) -> Runner:
        begin_s = max(now_s, state.working_since_s())
        left = _whole(state.iterations_left(now_s))
        return Runner(phases, left, begin_s, due_s=begin_s)


def _whole(iterations: float) -> int:
    return max(1, math.ceil(iterations - 1e-6))


def _iteration_s(end_s: float, now_s: float, state: JobState) -> float:
    """Return the time of an iteration with which a job ends at `end_s`."""
    work_s = end_s - max(now_s, state.working_since_s())
    return max(work_s / max(state.iterations_left(now_s), 1e-9), LEAST_S)


def _no_rates(senders: frozenset[str]) -> Mapping[str, float]:
    return {}


class _Rates:
    """Rates of those that send at the same time, each set solved once."""

    def __init__(self, allocator: Allocator, jobs: Sequence[Job], resent: float) -> None:
        self._flows = allocator.flows()
        self._resent = resent
        self._names = [job.name for job in jobs]
        self._sums = np.flatnonzero(self._flows.pool >= 0)
        self._parts = run_lengths(self._flows)
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
