"""The rules of Synergy's public simulator where they differ from the paper, to check its figures.

Jobs are not sorted by demand (only LAS with TUNE places large jobs first); a GPU is the first that has its
share free, on whichever server, without best fit or consolidation; a job has two speeds, ideal and fair, and
a job that cannot have its ideal CPUs on one server a speed on the line between them; a job whose neighbour
needs room falls back even if it has nothing above its fair share; the storage share never limits. Only OPT
uses the matrices: it solves the first program, in which a job counts once for any number of GPUs, grants the
resulting shares, and never checks whether servers have them. One rule is omitted: the priority of jobs that
have not run for 1,000 hours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.policy import Group, JobState, Submission
from controller.policies.scheduling.synergy.allocators import ShareGrant, SharePlan, dominant_share, runnable
from controller.policies.scheduling.synergy.demand import (
    BadDemand,
    Demand,
    Infeasible,
    ModelProfile,
    Servers,
    ServerShape,
    ShareOption,
    Split,
    undominated,
    within,
)
from controller.policies.scheduling.synergy.opt import share_out
from controller.policies.scheduling.synergy.policy import (
    Allocator,
    DemandOf,
    ShareSpeed,
    SynergyPolicy,
    by_arrival,
    by_attained,
)


class RoundSpeed(ShareSpeed):
    """As `ShareSpeed`, but a round holds whole iterations only, as there.

    A job that ends within a round holds its GPUs until the end of the round, and has ended then, as with
    `SteppedRun`. An iteration counts as shorter by a billionth,
    so that rounding never moves the last one into the next round.
    """

    def __init__(self, demand_of: DemandOf, *, round_s: float = 300.0) -> None:
        super().__init__(demand_of)
        self._round_s = round_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the part of the round for each of its iterations."""
        (granted_s,) = super().iteration_s(group)
        whole = math.floor(self._round_s / granted_s)
        if whole < 1:
            raise BadSpec(
                f"job {group.jobs[0].spec.name!r} needs {granted_s:g} s for an iteration;"
                f" a round of {self._round_s:g} s holds none"
            )
        return [self._round_s / whole * (1 - 1e-9)]


WITH_OPT = ("fifo", "srtf")
"""The orders for which the public simulator can run OPT."""


def replica_demand(spec: Submission, profile: ModelProfile, shape: ServerShape) -> Demand:
    """Return a job's demand as the public simulator derives it from a profile.

    Ideal CPUs and memory are cut to one server's; speed then falls on a line over the CPUs. Jobs for more
    than one server whose demand is cut get the fair share of that resource and no speed-up. A profile that
    needs more memory than its fair share but no more CPUs has no such line; the public simulator stops at
    it, here the job is as fast as with its fair share.
    """
    gpus, fair_cpus, fair_memory = spec.gpus, shape.fair_cpus, shape.fair_memory_gb
    cpus, memory, speed = gpus * profile.ideal_cpus, gpus * profile.ideal_memory_gb, profile.speedup
    cut = False
    if cpus > shape.cpus:
        cpus, cut = (gpus * fair_cpus, False) if gpus > shape.gpus else (shape.cpus, True)
        speed = 1.0 if gpus > shape.gpus else speed
    if memory > shape.memory_gb:
        memory, cut = (gpus * fair_memory, False) if gpus > shape.gpus else (shape.memory_gb, True)
        speed = 1.0 if gpus > shape.gpus else speed
    if cut:
        above = gpus * (profile.ideal_cpus - fair_cpus)
        speed = 1 + (speed - 1) / above * (cpus - gpus * fair_cpus) if above else 1.0
    ideal = ShareOption(cpus / gpus, memory / gpus, speed)
    floor = ideal
    if ideal.cpus > fair_cpus or ideal.memory_gb > fair_memory:
        floor = ShareOption(fair_cpus, fair_memory, 1.0)
    return Demand(spec.name, gpus, (floor, ideal), floor, ideal)


def replica_grid(spec: Submission, profile: ModelProfile, shape: ServerShape) -> Demand:
    """Return a job's demand for OPT: the part of the matrix that is no slower than the fair share.

    The matrix is for one GPU, for any number of GPUs and any size of servers. The ideal share, which only the
    order of the jobs uses, is `replica_demand`'s. Raises BadDemand if the matrix lacks the fair share.
    """
    grid = profile.sensitivity
    fair = grid.at(shape.fair_cpus, shape.fair_memory_gb)
    if fair <= 0:
        raise BadDemand(
            f"job {spec.name!r}: the matrix of {profile.name!r} begins above the fair share,"
            f" {shape.fair_cpus:g} CPUs and {shape.fair_memory_gb:g} GB"
        )
    options = [
        ShareOption(cpus, memory, speed / fair)
        for cpus, row in zip(grid.cpus, grid.throughput, strict=True)
        for memory, speed in zip(grid.memory_gb, row, strict=True)
        if speed >= fair
    ]
    floor = ShareOption(shape.fair_cpus, shape.fair_memory_gb, 1.0)
    ideal = replica_demand(spec, profile, shape).ideal
    return Demand(spec.name, spec.gpus, tuple(undominated(options)), floor, ideal)


def replica_demands(
    profiles: Mapping[str, ModelProfile], shape: ServerShape, *, mode: str = "tune"
) -> DemandOf:
    """Return a function from a job to its demand; it raises BadSpec for a model without a profile.

    For the mode `opt` these are grids, for all others two points; policy and speed model have to be given
    the same.
    """
    make = replica_grid if mode == "opt" else replica_demand
    known: dict[tuple[str, int], Demand] = {}

    def demand_of(spec: Submission) -> Demand:
        key = spec.model, spec.gpus
        if key not in known:
            if spec.model not in profiles:
                raise BadSpec(
                    f"job {spec.name!r} trains {spec.model!r}, which has no profile;"
                    f" there are: {', '.join(profiles)}"
                )
            known[key] = make(spec, profiles[spec.model], shape)
        return known[key]

    return demand_of


def replica_proportional(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Give each job in order its fair share on the first GPUs that are free."""
    fair = ShareOption(servers.fair_cpus, servers.fair_memory_gb, 1.0)
    return _in_turn(demands, _FirstFit(servers), lambda fleet, job: fleet.take(job, fair))


def replica_greedy(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Give each job in order its ideal share on the first GPUs that have it, or skip the job."""
    return _in_turn(demands, _FirstFit(servers), lambda fleet, job: fleet.take(job, job.ideal))


def replica_tune(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Give each job in order its ideal share, or its fair one, for which neighbours fall back if needed.

    Raises Infeasible where the public simulator exits: a job does not fit although neighbours fell back.
    """
    return _in_turn(demands, _FirstFit(servers), _tune)


def replica_opt(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Give each job the share that the first program grants it, on free GPUs, whatever their servers have.

    Demands are from `replica_grid`. Raises the errors of `share_out`.
    """
    chosen, waiting = runnable(demands, servers.gpus)
    if not chosen:
        return SharePlan((), tuple(waiting))
    options, _ = share_out(chosen, servers, counts=[1] * len(chosen))
    grants, first = [], 0
    for job, option in zip(chosen, options, strict=True):
        grants.append(ShareGrant(job, option, _consecutive(first, job.gpus, servers.largest.gpus)))
        first += job.gpus
    return SharePlan(tuple(grants), tuple(waiting))


def _consecutive(first: int, gpus: int, per_server: int) -> Split:
    servers = range(first // per_server, (first + gpus - 1) // per_server + 1)
    ends = ((s, max(first, s * per_server), min(first + gpus, (s + 1) * per_server)) for s in servers)
    return tuple((server, end - begin) for server, begin, end in ends)


def _in_turn(
    demands: Sequence[Demand], fleet: _FirstFit, allocate: Callable[[_FirstFit, Demand], bool]
) -> SharePlan:
    ran: list[Demand] = []
    waiting: list[Demand] = []
    for position, job in enumerate(demands):
        if fleet.free_gpus == 0:
            waiting += demands[position:]
            break
        if job.gpus <= fleet.free_gpus and allocate(fleet, job):
            ran.append(job)
        else:
            waiting.append(job)
    return SharePlan(tuple(fleet.grant(job) for job in ran), tuple(waiting))


def _tune(fleet: _FirstFit, job: Demand) -> bool:
    if fleet.take(job, job.ideal) or (job.floor is not job.ideal and fleet.take(job, job.floor)):
        return True
    for server, gpus in fleet.with_gpus(job.gpus):
        fleet.make_room(server, gpus, job.floor)
    if not fleet.take(job, job.floor):
        raise Infeasible(f"no room for {job.gpus} GPUs of job {job.job} after its neighbours fell back")
    return True


@dataclass(slots=True)
class _Held:
    demand: Demand
    option: ShareOption
    split: Split


class _FirstFit:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._gpus = [shape.gpus for shape in servers.shapes]
        self._cpus = [float(shape.cpus) for shape in servers.shapes]
        self._memory = [float(shape.memory_gb) for shape in servers.shapes]
        self._on_server: list[list[_Held]] = [[] for _ in servers.shapes]
        self._held: dict[Hashable, _Held] = {}
        self._first = 0  # no server before this one has a free GPU
        self.free_gpus = servers.gpus

    def take(self, job: Demand, option: ShareOption) -> bool:
        left, split = job.gpus, []
        all_gpus, all_cpus, all_memory = self._gpus, self._cpus, self._memory
        cpus, memory = option.cpus, option.memory_gb
        while not all_gpus[self._first]:
            self._first += 1
        for server in range(self._first, len(all_gpus)):
            free = all_gpus[server]
            if free and within(cpus, all_cpus[server]) and within(memory, all_memory[server]):
                here = 1
                if left > 1:
                    fit = (int(all_cpus[server] / cpus + 1e-9), int(all_memory[server] / memory + 1e-9))
                    here = min(left, free, *fit)
                split.append((server, here))
                left -= here
                if not left:
                    break
        if left:
            return False
        held = _Held(job, option, tuple(split))
        self._book(held, 1)
        self._held[job.job] = held
        for server, _ in split:
            self._on_server[server].append(held)
        self.free_gpus -= job.gpus
        return True

    def grant(self, job: Demand) -> ShareGrant:
        held = self._held[job.job]
        return ShareGrant(job, held.option, held.split)

    def with_gpus(self, gpus: int) -> list[tuple[int, int]]:
        if gpus > 1:
            for server, free in enumerate(self._gpus):
                if free >= gpus:
                    return [(server, gpus)]
        chosen = []
        for free, server in sorted((free, server) for server, free in enumerate(self._gpus) if free):
            here = min(free, gpus)
            chosen.append((server, here))
            gpus -= here
            if not gpus:
                break
        return chosen

    def make_room(self, server: int, gpus: int, option: ShareOption) -> None:
        cpus = max(0.0, gpus * option.cpus - self._cpus[server])
        memory = max(0.0, gpus * option.memory_gb - self._memory[server])
        if not cpus and not memory:
            return
        peers = self._on_server[server]
        peers.sort(key=lambda p: (len(p.split), -p.option.cpus, -p.option.memory_gb))
        falling = []
        for peer in peers:  # also those that free nothing
            here = next(count for place, count in peer.split if place == server)
            cpus = max(0.0, cpus - max(0.0, here * (peer.option.cpus - self._servers.fair_cpus)))
            memory = max(
                0.0, memory - max(0.0, here * (peer.option.memory_gb - self._servers.fair_memory_gb))
            )
            falling.append(peer)
            if not cpus and not memory:
                break
        for peer in falling:
            self._book(peer, -1)
            peer.option = peer.demand.floor
            self._book(peer, 1)

    def _book(self, held: _Held, sign: int) -> None:
        for server, gpus in held.split:
            self._gpus[server] -= sign * gpus
            self._cpus[server] -= sign * gpus * held.option.cpus
            self._memory[server] -= sign * gpus * held.option.memory_gb


def whole_iterations_left(job: JobState, now_s: float) -> float:
    """Return the seconds to go at the fair share; the public simulator counts whole iterations."""
    return round(job.iterations_left(now_s)) * job.alone_s


def replica_policy(order: str, mode: str, demand_of: DemandOf, *, servers: Servers) -> SynergyPolicy:
    """Return a policy of the public simulator.

    Args:
        order: `fifo`, `srtf`, `las`, `ftf`, `drf` or `tetris`.
        mode: `fair` (GPU-proportional), `greedy`, `tune` or `opt`.
        demand_of: The result of `replica_demands` for this mode.
        servers: The servers, with which DRF and Tetris compare demands.

    Raises BadSpec for any other order or mode, and for `opt` with an order for which the public simulator
    has no result: it takes a server's number of GPUs for its CPUs and memory there, and stops.
    """
    allocators: Mapping[str, Allocator] = {
        "fair": replica_proportional,
        "greedy": replica_greedy,
        "tune": replica_tune,
        "opt": replica_opt,
    }
    if mode not in allocators:
        raise BadSpec(f"mode {mode!r}; there are {', '.join(allocators)}")
    allocate, fair = allocators[mode], mode == "fair"

    def remaining(job: JobState, now_s: float, speed: float) -> float:
        left_s = whole_iterations_left(job, now_s)
        if fair:
            return left_s
        return left_s / (demand_of(job.spec).ideal.speed if mode == "opt" else speed)

    def finish_ratio(job: JobState, now_s: float, speed: float) -> float:
        ideal_s = job.alone_s * job.spec.iterations
        return (now_s - job.spec.arrival_s + remaining(job, now_s, speed)) / ideal_s

    def share(job: JobState, now_s: float, speed: float) -> float:
        return dominant_share(demand_of(job.spec), servers)

    def weighted(job: JobState, now_s: float, speed: float) -> float:
        wants, shape = demand_of(job.spec), servers.largest
        parts = 1 / shape.gpus + wants.ideal.cpus / shape.cpus + wants.ideal.memory_gb / shape.memory_gb
        return remaining(job, now_s, speed) * wants.gpus * parts / len(servers)

    ranks = {
        "fifo": by_arrival,
        "srtf": remaining,
        "las": by_attained,
        "ftf": finish_ratio,
        "drf": share,
        "tetris": weighted,
    }
    if order not in ranks:
        raise BadSpec(f"order {order!r}; there are {', '.join(ranks)}")
    if mode == "opt" and order not in WITH_OPT:
        raise BadSpec(f"mode 'opt' with order {order!r}; it goes with {', '.join(WITH_OPT)}")
    if order == "las":
        allocate = _selected(allocate, large_first=mode == "tune")
    return SynergyPolicy(
        f"{order}+{mode}", ranks[order], allocate, demand_of, drifts=order not in ("fifo", "drf")
    )


def _selected(allocate: Allocator, *, large_first: bool) -> Allocator:
    """Restrict an allocator to the jobs whose GPUs the cluster has, as LAS alone does."""

    def of_selected(demands: Sequence[Demand], servers: Servers) -> SharePlan:
        chosen, waiting = runnable(demands, servers.gpus)
        if large_first:
            chosen.sort(key=lambda d: -d.gpus)
        plan = allocate(chosen, servers)
        return SharePlan(plan.grants, (*plan.waiting, *waiting))

    return of_selected
