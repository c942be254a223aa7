"""Simulate jobs on a cluster with a network: scheduling, placement, memory and routing together.

Events of jobs and memory over time are recorded for plots and explanations.

Jobs contend for links and slots, so the speed model knows where each job is placed. A family's own model
determines how fast jobs run on their GPUs; the time of their gradients beside other jobs' gradients is added.
The core decides places and slots (`controller.core.allocation`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from controller.core.allocation import Allocation
from controller.core.compose import network_policies, submission_of
from controller.core.events import Submitted
from controller.errors import BadSpec
from controller.policies.memory.policy import MemoryDivision, MemoryProblem
from controller.policies.memory.regions import SlotStatus
from controller.policies.scheduling.policy import Group, JobState, SpeedModel, Submission
from controller.policies.settings import AllocationSettings
from controller.simulator.engine import EndedJob, EventLoop, PolicyRun, SimulationResult, admitted, measure
from controller.simulator.network.average import (
    Phases,
    Work,
    average,
    crowded,
    link_rates,
    phases_of,
    run_lengths,
)
from controller.simulator.runs import refusals
from controller.vocabulary import Job, Topology


@dataclass
class NetworkLog:
    """States in order of time: each entry has a time in seconds, and the state from this time on."""

    places: list[tuple[float, str, Job]] = field(default_factory=list)
    memory: list[tuple[float, MemoryProblem, MemoryDivision]] = field(default_factory=list)
    levels: list[tuple[float, Mapping[str, float]]] = field(default_factory=list)
    """Rates at which jobs send, bits per second."""

    def on_placed(self, now_s: float, job: Job) -> None:
        """Record that a job has servers and a tree from now on."""
        self.places.append((now_s, job.name, job))

    def on_divided(self, now_s: float, problem: MemoryProblem, division: MemoryDivision) -> None:
        """Record a division of memory among the jobs of `problem`, which is valid from `now_s` on."""
        self.memory.append((now_s, problem, division))

    def rates(self, now_s: float, rates: Mapping[str, float]) -> None:
        """Record the rates at which jobs send from now on, bits per second."""
        self.levels.append((now_s, rates))


# ---------------------------------------------------------------------------
# Grants that were taken back: which jobs were promised slots on arrival, and lost them later.


class GrantWatch:
    """Watcher of an allocation: finds jobs that lose the slots granted in their first division of memory."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._granted: set[str] = set()
        self.lost: set[str] = set()
        """Jobs that were granted slots in their first division of memory, but not in some later division."""

    def on_placed(self, now_s: float, job: Job) -> None:
        """Ignore a job's place, which has nothing to do with memory."""

    def on_divided(self, now_s: float, problem: MemoryProblem, division: MemoryDivision) -> None:
        """Record the jobs that are granted no slots now but were granted slots in their first division."""
        for name, standing in division.standing.items():
            granted = standing is SlotStatus.GRANTED
            if name not in self._seen:
                self._seen.add(name)
                if granted:
                    self._granted.add(name)
            elif not granted and name in self._granted:
                self.lost.add(name)


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
        alone_s = placed.model_bytes * 8 / self._allocator.topology.fastest_bps
        before_s = max(0.0, round_s - alone_s)
        return replace(phases, compute_s=before_s, ready_s=(before_s,) * len(phases.bits))

    @property
    def _announced_bits(self) -> float:
        """Maximum number of bits that announce the exponents of a tensor: one window of packets."""
        payload = min(switch.payload_bytes for switch in self._allocator.topology.switches)
        return self._settings.window * payload * 8.0


Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class NetworkTask:
    """One simulation as data for another process.

    Attributes:
        jobs: The jobs.
        topology: Servers, switches and links.
        scheduler: Name of the scheduling policy.
        settings: Names of the allocation policies, and settings of the network's model.
        scheduler_settings: Settings of the scheduling policy, by name.
        keep_log: Whether to keep a log of events, for plots and explanations.
        verify: Whether to check every decision of the scheduling policy.
    """

    jobs: Sequence[Job] = field(repr=False)
    topology: Topology = field(repr=False)
    scheduler: str
    settings: NetworkSettings
    scheduler_settings: tuple[tuple[str, float], ...] = ()
    keep_log: bool = False
    verify: bool = False

    @property
    def names(self) -> Mapping[str, str]:
        """The names of scheduler and allocation policies."""
        return {"scheduler": self.scheduler, **self.settings.names}


@dataclass(frozen=True, slots=True)
class NetworkMetrics:
    """Metrics of one simulation; times in seconds.

    `avg_slowdown` is the mean of completion time over time alone with the fastest links. `ended` counts jobs
    that were ended because they could not meet their deadline. `missed` counts these jobs, and jobs that
    completed too late. `broken` counts the missed jobs that were granted slots on arrival but
    lost them later.
    """

    jobs: int
    avg_jct_s: float
    median_jct_s: float
    p99_jct_s: float
    makespan_s: float
    avg_wait_s: float
    avg_slowdown: float
    p99_slowdown: float
    gpu_busy: float
    deadlines: int
    missed: int
    ended: int
    preemptions: int
    broken: int = 0


@dataclass(frozen=True, slots=True)
class NetworkOutcome:
    """Result of a task; `cpu_s` is processor time."""

    task: NetworkTask
    simulated: NetworkResult
    metrics: NetworkMetrics
    cpu_s: float


def run_network(task: NetworkTask, progress: Progress | None = None) -> NetworkOutcome:
    """Run a task's simulation and measure its result. Raises SimulationFailed, which names the policies."""
    with refusals(" + ".join(task.names.values())):
        began_s = time.process_time()
        simulated = simulate_network(task, progress)
        cpu_s = time.process_time() - began_s
    return NetworkOutcome(task, simulated, metrics_of(simulated), cpu_s)


def metrics_of(simulated: NetworkResult) -> NetworkMetrics:
    """Return the metrics. Completion times and slowdowns are of the completed jobs."""
    whole, jobs = simulated.result, simulated.result.jobs
    done = measure(replace(whole, jobs=[each for each in jobs if each.completed]))
    return NetworkMetrics(
        jobs=len(jobs),
        avg_jct_s=done.avg_jct_s,
        median_jct_s=done.median_jct_s,
        p99_jct_s=done.p99_jct_s,
        makespan_s=max((each.finish_s for each in jobs), default=0.0),
        avg_wait_s=done.avg_wait_s,
        avg_slowdown=done.avg_slowdown,
        p99_slowdown=done.p99_slowdown,
        gpu_busy=done.gpu_busy,
        deadlines=sum(job.deadline_s is not None for job in simulated.jobs.values()),
        missed=len(simulated.missed),
        ended=sum(not each.completed for each in jobs),
        preemptions=sum(each.preemptions for each in jobs),
        broken=sum(each.spec.name in simulated.lost for each in simulated.missed),
    )


@dataclass(frozen=True)
class NetworkResult:
    """Result of a simulation with a network; `log` is None unless it was requested.

    `crowded` names jobs whose times are unreliable, because jobs shared too few slots for the model
    (`average.TOO_LONG`).
    """

    result: SimulationResult
    jobs: Mapping[str, Job]
    topology: Topology
    """The topology; its link rates count payload only, without headers."""
    margin: float
    crowded: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    """Jobs that were granted slots on arrival and lost them later (`log.GrantWatch`)."""
    log: NetworkLog | None = field(default=None, repr=False)

    @property
    def missed(self) -> Sequence[EndedJob]:
        """Jobs that completed after their deadlines, or were ended because they could not meet them."""
        return [each for each in self.result.jobs if self.misses(each)]

    def misses(self, ended: EndedJob) -> bool:
        """Return whether a job missed its deadline."""
        due_s = self.jobs[ended.spec.name].due_s
        return due_s is not None and (not ended.completed or ended.finish_s > due_s * (1 + 1e-9))


def simulate_network(task: NetworkTask, progress: Progress | None = None) -> NetworkResult:
    """Simulate jobs under a scheduler and allocation policies until all have ended.

    `progress` is called from time to time with the number of ended jobs and of all jobs. Raises BadSpec for
    unknown names and impossible jobs, and the simulator's errors.
    """
    parts = network_policies(task.topology, task.scheduler, task.settings, task.scheduler_settings)
    setup, allocation = parts.setup, parts.allocation
    if type(PolicyRun.of(setup)).run is not PolicyRun.run:
        raise BadSpec(
            f"scheduler {task.scheduler!r} is a replica with its own simulator, which has no network"
        )
    log = NetworkLog() if task.keep_log else None
    if log is not None:
        allocation.watchers.append(log)
    promises = GrantWatch()
    allocation.watchers.append(promises)
    described = {job.name: job for job in task.jobs}
    specs = [submission_of(job, allocation.allocator.topology) for job in task.jobs]
    speed = NetworkSpeed(setup.speed, allocation, task.settings, log)
    simulation = EventLoop(
        [Submitted(spec.arrival_s, spec, described[spec.name]) for spec in admitted(specs, parts.servers)],
        parts.servers,
        replace(setup, speed=speed),
        allocation=allocation,
        verify=task.verify,
    )
    result = simulation.run(progress)
    return NetworkResult(
        result,
        described,
        allocation.allocator.topology,
        task.settings.margin,
        crowded=frozenset(speed.crowded),
        lost=frozenset(promises.lost),
        log=log,
    )
