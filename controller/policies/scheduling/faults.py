"""``faults:POLICY``: servers that fail and recover, jobs that users cancel: drawn by seed, or given.

`Faulty` stops jobs on servers that are down; it is a speed model like those of contending jobs, so the event
loop is the same as without faults. `Evacuate` moves jobs off servers that are down.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from controller.policies.family import Family, Options, Setup, SimulationConfig, declared, option, resolved
from controller.policies.scheduling import baselines
from controller.policies.scheduling.beliefs import TRUTH, Told
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.placement import Counts, Slots
from controller.policies.scheduling.policy import (
    Contention,
    Decision,
    Group,
    JobState,
    Policy,
    SpeedModel,
    View,
)
from controller.policies.scheduling.ranked import settle
from controller.policies.scheduling.speed import Exclusive
from controller.policies.scheduling.tiresias import Tiresias
from controller.vocabulary import Cluster

LEMONS = 4
"""One server in so many is a lemon."""

WORSE = 10.0
"""A lemon fails so many times as often as another server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions(Options):
    """Options of the family; `seed` is that of all draws."""

    mtbf_h: float = option("mean time between failures of a server, hours; 0: none", 100.0, 0.0, 1e9)
    repair_s: float = option("how long a server is down", 3600.0, 1.0, 1e9)
    checkpoint_s: float = option("jobs save their work so often", 1800.0, 1.0, 1e9)
    cancelled: float = option("part of the jobs that are cancelled as they run", 0.1, 0.0, 1.0)
    restart_scale: float = option("factor on the cost of restarts", 1.0, 0.0, 1e6)
    seed: int = 0

    @property
    def mtbf_s(self) -> float:
        """Mean time between failures in seconds; infinite: none fails."""
        return self.mtbf_h * 3600.0 or math.inf


class Outages:
    """When each server is down; implements `controller.policies.scheduling.faults.Health`.

    Times between failures are exponential. One server in `LEMONS` fails `WORSE` times as often as the others.
    """

    def __init__(self, faults: FaultOptions, nodes: int) -> None:
        self._faults = faults
        usual = LEMONS / (LEMONS - 1 + WORSE) if nodes >= LEMONS else 1.0
        lemons = set(random.Random(f"lemons {faults.seed}").sample(range(nodes), nodes // LEMONS))
        self._draws = [
            _Failures(faults, number, faults.mtbf_s / (usual * (WORSE if number in lemons else 1.0)))
            for number in range(nodes)
        ]
        self._begins: list[list[float]] = [[draw.next_s()] for draw in self._draws]

    def down(self, now_s: float) -> dict[int, float]:
        """Return the servers that are down, and since when."""
        found = {}
        for number in range(len(self._begins)):
            last_s = self._last_s(number, now_s)
            if now_s < last_s + self._faults.repair_s:
                found[number] = last_s
        return found

    def next_s(self, now_s: float) -> float:
        """Return the time at which a server next goes down or comes back; infinite if none does."""
        times = [self._begins[number][self._count(number, now_s)] for number in range(len(self._begins))]
        times += [since_s + self._faults.repair_s for since_s in self.down(now_s).values()]
        return min(time_s for time_s in times if time_s > now_s)

    def _count(self, number: int, now_s: float) -> int:
        begins = self._begins[number]
        while begins[-1] <= now_s:
            begins.append(self._draws[number].next_s())
        return bisect_right(begins, now_s)

    def _last_s(self, number: int, now_s: float) -> float:
        count = self._count(number, now_s)
        return self._begins[number][count - 1] if count else -math.inf


class _Failures:
    """Draws when a server fails, one time after the other; it can be copied, unlike a generator."""

    def __init__(self, faults: FaultOptions, node: int, mtbf_s: float) -> None:
        self._rng = random.Random(f"failures {faults.seed} {node}")
        self._rate = 1 / mtbf_s
        self._repair_s = faults.repair_s
        self._up_s = 0.0

    def next_s(self) -> float:
        """Return the time of the next failure; infinite if there is none."""
        fails_s = self._up_s + (self._rng.expovariate(self._rate) if self._rate else math.inf)
        self._up_s = fails_s + self._repair_s
        return fails_s


@dataclass(slots=True)
class _Hit:
    """A job whose server went down: since when, and the iterations lost."""

    since_s: float
    lost_s: float


@dataclass(slots=True)
class Faulty:
    """A speed model with failing servers and cancelled jobs.

    A job on a server that is down makes no progress. Its progress since its last checkpoint is lost: it pays
    for that, and for a start, once it is moved, or once the server is back.
    """

    speed: SpeedModel
    cluster: Cluster
    faults: FaultOptions
    outages: Outages
    _hit: dict[str, _Hit] = field(default_factory=dict)
    _resume_s: dict[str, float] = field(default_factory=dict)
    _normal: dict[str, tuple[Group, float]] = field(default_factory=dict)
    _cuts: dict[str, float] = field(default_factory=dict)
    _ran: dict[str, tuple[JobState, Group, float]] = field(default_factory=dict)  # and since when it worked

    def alone_s(self, job: Submission) -> float:
        """Return the job's own seconds per iteration."""
        return self.speed.alone_s(job)

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return each member's seconds per iteration without faults."""
        return self.speed.iteration_s(group)

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost of a start plus the progress lost with servers, in seconds for each member."""
        costs = self.speed.restart_s(group)
        return [cost + self._lost_s(job) for cost, job in zip(costs, group.jobs, strict=True)]

    def contend(self, now_s: float, groups: Sequence[Group]) -> Contention:
        """Return which jobs stop, continue, and are cancelled by their users."""
        down = self.outages.down(now_s)
        self._note_moved(now_s, down)
        changed: list[tuple[JobState, float]] = []
        ended: list[JobState] = []
        again_s = self.outages.next_s(now_s)
        for group in groups:
            since_s = max((down[node] for node in self._nodes(group) if node in down), default=None)
            for job in group.jobs:
                if self._ran.get(job.spec.name, (None, None))[1] is not group:
                    self._ran[job.spec.name] = job, group, job.working_since_s()
                speed_s = self._speed_s(job, group, now_s, since_s)
                if speed_s != job.iteration_s:
                    changed.append((job, speed_s))
                again_s = min(again_s, self._resume_s.get(job.spec.name, math.inf))
                cut_s = self._cut_s(job, now_s, speed_s)
                if cut_s <= now_s:
                    ended.append(job)
                again_s = min(again_s, cut_s) if cut_s > now_s else again_s
        return Contention(changed, again_s, ended)

    def _note_moved(self, now_s: float, down: Mapping[int, float]) -> None:
        """Charge jobs that were moved or stopped in the very moment in which their server went down."""
        for name, (job, group, working_s) in list(self._ran.items()):
            if job.group is group:
                continue
            del self._ran[name]
            if job.finish_s is not None or all(down.get(node) != now_s for node in self._nodes(group)):
                continue
            lost_s = math.fmod(max(0.0, now_s - working_s), self.faults.checkpoint_s)
            if job.group is None:
                self._hit[name] = _Hit(now_s, lost_s)
            else:
                self._resume_s[name] = job.working_since_s() + lost_s

    def _nodes(self, group: Group) -> set[int]:
        return {self.cluster.node_of[gpu] for gpu in group.gpus}

    def _lost_s(self, job: JobState) -> float:
        """Return the seconds of work that `job` lost, and forget them: the job starts again."""
        self._resume_s.pop(job.spec.name, None)
        hit = self._hit.pop(job.spec.name, None)
        return 0.0 if hit is None else hit.lost_s

    def _speed_s(self, job: JobState, group: Group, now_s: float, since_s: float | None) -> float:
        """Return its seconds per iteration from now on."""
        name = job.spec.name
        if self._normal.get(name, (None, 0.0))[0] is not group:
            self._normal[name] = group, job.iteration_s
        if since_s is not None:
            if name not in self._hit:
                worked_s = max(0.0, since_s - job.working_since_s())
                self._hit[name] = _Hit(since_s, math.fmod(worked_s, self.faults.checkpoint_s))
            self._resume_s.pop(name, None)
            return math.inf
        if name in self._hit:  # its server is back
            cost_s = self.speed.restart_s(group)[group.jobs.index(job)]
            self._resume_s[name] = now_s + cost_s + self._hit.pop(name).lost_s
        if name in self._resume_s:
            if now_s < self._resume_s[name]:
                return math.inf
            del self._resume_s[name]
        return self._normal[name][1]

    def _cut_s(self, job: JobState, now_s: float, speed_s: float) -> float:
        """Return the time at which the job is cancelled at its present speed; infinite: never."""
        at = self._cuts.get(job.spec.name)
        if at is None:
            rng = random.Random(f"cancelled {self.faults.seed} {job.spec.name}")
            at = self._cuts[job.spec.name] = (
                rng.random() if rng.random() < self.faults.cancelled else math.inf
            )
        if at == math.inf or speed_s == math.inf:
            return math.inf
        left = job.iterations_left(now_s) - (1 - at) * job.spec.iterations
        if left <= 1e-9 * job.spec.iterations:
            return now_s
        return max(now_s, job.working_since_s()) + left * speed_s


class Health(Protocol):
    """The state of servers, by number."""

    def down(self, now_s: float) -> Collection[int]:
        """Return the servers that are down."""

    def next_s(self, now_s: float) -> float:
        """Return the time at which a server next goes down or comes back."""


class Evacuate:
    """Shortest remaining service first on the servers that are up; ours.

    A job whose server goes down restarts elsewhere at once, from its checkpoint, if it ranks before others
    that run.
    """

    name = "evacuate"

    def __init__(self, health: Health, told: Told = TRUTH) -> None:
        self._health = health
        self._told = told

    def decide(self, view: View) -> Decision:
        """Return the jobs of least remaining service that fit on the servers that are up."""
        now_s, cluster = view.now_s, view.cluster
        down = self._health.down(now_s)
        up = [number for number in range(len(cluster.servers)) if number not in down]
        wake_s = self._health.next_s(now_s) if view.jobs else None
        if not up:
            return Decision([], wake_s)
        part = Cluster(tuple(cluster.servers[number] for number in up))
        ranked = sorted(
            view.jobs.values(),
            key=lambda job: (self._told.remaining_s(job, now_s) * job.spec.gpus, job.order),
        )
        counts = Counts(part)
        chosen = [job for job in ranked if counts.take(job.spec.gpus)]
        return Decision(_placed(chosen, part, _numbers(cluster, up)), wake_s)


def _numbers(cluster: Cluster, nodes: list[int]) -> list[int]:
    """Return the cluster's number of each GPU of a part that has these nodes, in this order."""
    firsts = [(cluster.first_gpu[node], cluster.servers[node].gpus) for node in nodes]
    return [gpu for first, gpus in firsts for gpu in range(first, first + gpus)]


def _placed(chosen: list[JobState], part: Cluster, numbers: list[int]) -> list[Group]:
    """Place jobs on the servers that are up: those that run there stay if they can (`ranked.settle`)."""
    local = {gpu: number for number, gpu in enumerate(numbers)}
    running = {
        job.order: Group((job,), tuple(local[gpu] for gpu in job.group.gpus))
        for job in chosen
        if job.group is not None and all(gpu in local for gpu in job.group.gpus)
    }
    slots = Slots(part)
    for group in running.values():
        slots.keep(group.gpus)
    placed, _ = settle(chosen, running, slots, part)
    return [_in_whole(group, numbers) for group in placed.values()]


def _in_whole(group: Group, numbers: list[int]) -> Group:
    """Return the group with the whole cluster's numbers: the one that runs, if it is the same."""
    (job,) = group.jobs
    gpus = tuple(numbers[number] for number in group.gpus)
    if job.group is not None and job.group.gpus == gpus:
        return job.group
    return Group((job,), gpus, reason="on servers that are up")


POLICIES: Mapping[str, tuple[str, Callable[[Outages], Policy]]] = {
    "fifo-backfill": (
        "first in, first out; waits for servers that are down",
        lambda o: baselines.fifo(backfill=True),
    ),
    "srsf": ("shortest remaining service first; waits for servers that are down", lambda o: baselines.srsf()),
    "tiresias": ("attained service in a few queues; waits for servers that are down", lambda o: Tiresias()),
    "evacuate": ("srsf whose jobs leave servers that are down; ours", Evacuate),
}


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval."""
    faults = replace(resolved(FaultOptions, config), seed=config.seed)
    nodes = len(config.cluster.servers)
    speed = Faulty(Exclusive(faults.restart_scale), config.cluster, faults, Outages(faults, nodes))
    return Setup(POLICIES[name][1](Outages(faults, nodes)), speed)


FAMILY = Family(
    "servers fail and jobs are cancelled, by seed",
    {name: about for name, (about, _) in POLICIES.items()},
    make,
    settings=declared(FaultOptions),
    main=("evacuate",),
)
