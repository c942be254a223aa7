"""Simulate jobs on a cluster with a network: scheduling, placement, memory and routing together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.core.compose import network_policies, submission_of
from controller.core.events import Submitted
from controller.errors import BadSpec
from controller.simulator.engine import EventLoop, PolicyRun, admitted
from controller.simulator.network.log import GrantWatch, NetworkLog
from controller.simulator.network.speed import NetworkSettings, NetworkSpeed
from controller.simulator.record import EndedJob, SimulationResult, measure
from controller.simulator.runs import refusals
from controller.vocabulary import Job, Topology

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
