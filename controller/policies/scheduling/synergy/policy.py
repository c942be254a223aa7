"""Synergy as a scheduling policy: in each round an order of the jobs, then an allocator.

`ShareSpeed` is its speed model: the speed of a job with the CPUs and the memory that it was granted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.policy import Decision, Group, JobState, SpeedModel, Submission, View
from controller.policies.scheduling.ranked import keep_until_repaid
from controller.policies.scheduling.synergy.allocators import ShareGrant, SharePlan, tetris
from controller.policies.scheduling.synergy.demand import (
    Demand,
    Sensitivity,
    Servers,
    ServerShape,
    ShareOption,
    Split,
    demand,
)
from controller.vocabulary import Cluster

DemandOf = Callable[[Submission], Demand]
"""Function that returns the demand of a submitted job; jobs with equal properties have equal demands."""


class ShareSpeed(SpeedModel):
    """Speed model: an iteration takes `spec.iteration_s` with the fair share, or less with a larger share.

    With a grant, a job has the speed of the fastest option of its demand that fits into the grant, and at
    least the speed with the fair share. A group without a grant has the fair share. `restart_scale` is a
    factor on the jobs' own restart costs; 0: restarts are free, as in Synergy's simulations. A job that keeps
    its GPUs and gets other CPUs and memory does not restart.
    """

    def __init__(self, demand_of: DemandOf, *, restart_scale: float = 0.0) -> None:
        self._demand_of = demand_of
        self._restart_scale = restart_scale

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the job's seconds per iteration with the group's grant."""
        if len(group.jobs) != 1:
            raise BadSpec(f"{len(group.jobs)} jobs on one set of GPUs; Synergy gives each job its own GPUs")
        spec = group.jobs[0].spec
        return [spec.iteration_s / self.speed(spec, group)]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return each member's own cost of a restart, in seconds."""
        return [job.spec.restart_s * self._restart_scale for job in group.jobs]

    def speed(self, spec: Submission, group: Group) -> float:
        """Return the job's speed with the group's grant, relative to the fair share."""
        if not group.cpus:
            return 1.0
        return self._demand_of(spec).speed(group.cpus[0] / spec.gpus, group.memory_gb[0] / spec.gpus)


ROUND_S = 300.0
"""Length of a round."""

Rank = Callable[[JobState, float, float], float]
"""Function of a job, the time and the job's speed in the last round that returns the job's rank. The job with
the lowest rank is first."""

Allocator = Callable[[Sequence[Demand], Servers], SharePlan]


def by_arrival(job: JobState, now_s: float, speed: float) -> float:
    """Return the rank for first in, first out."""
    return job.order


def by_remaining(job: JobState, now_s: float, speed: float) -> float:
    """Return the rank for shortest remaining time first."""
    return job.remaining_s(now_s) / speed


def by_attained(job: JobState, now_s: float, speed: float) -> float:
    """Return the rank for least attained service first: time multiplied by GPUs."""
    return job.attained_s(now_s) * job.spec.gpus


def by_fairness(job: JobState, now_s: float, speed: float) -> float:
    """Return the rank for lowest finish-time ratio first: time from arrival to end, divided by time alone."""
    alone_s = job.spec.iterations * job.alone_s
    return (now_s - job.spec.arrival_s + job.remaining_s(now_s) / speed) / alone_s


RANKS: Mapping[str, Rank] = {
    "fifo": by_arrival,
    "srtf": by_remaining,
    "las": by_attained,
    "ftf": by_fairness,
}


def servers_of(cluster: Cluster) -> Servers:
    """Return the cluster's servers, which may differ. Raises BadDemand for unlimited CPUs or memory."""
    return Servers(tuple(ServerShape(node.gpus, node.cpus, node.memory_gb) for node in cluster.servers))


def demands_by_matrix(matrices: Mapping[str, Sensitivity], servers: ServerShape | Servers) -> DemandOf:
    """Return a function that returns a job's demand, by the matrix of the job's model.

    The function raises BadSpec for a model without a matrix.
    """
    known: dict[tuple[str, int], Demand] = {}

    def demand_of(spec: Submission) -> Demand:
        key = spec.model, spec.gpus
        if key not in known:
            matrix = matrices.get(spec.model)
            if matrix is None:
                raise BadSpec(
                    f"job {spec.name!r} trains {spec.model!r}, which has no sensitivity matrix;"
                    f" there are: {', '.join(matrices)}"
                )
            known[key] = demand(spec.name, spec.gpus, matrix, servers)
        return known[key]

    return demand_of


class SynergyPolicy:
    """Policy that orders the jobs and allocates resources to them, in every round.

    Args:
        name: Name in tables.
        rank: Function that returns a job's rank; of jobs with equal rank, the one that arrived earlier is
            first.
        allocate: The allocator, which makes a plan from the jobs' demands in this order.
        demand_of: Function that returns a job's demand.
        drifts: Whether ranks change with time, so that every round needs a decision. If not, only rounds
            after an arrival or an end of a job need one.
        stay: Whether running jobs stay on their servers if their shares fit there, which saves restarts. If
            not, each round is planned as if no job ran yet, as published.
    """

    def __init__(
        self,
        name: str,
        rank: Rank,
        allocate: Allocator,
        demand_of: DemandOf,
        *,
        drifts: bool = True,
        stay: bool = False,
    ) -> None:
        self.name = name
        self._rank = rank
        self._allocate = allocate
        self._demand_of = demand_of
        self._drifts = drifts
        self._by_work = allocate is tetris  # it uses remaining work
        self._stay = stay
        self._servers: Servers | None = None
        self._demands: dict[int, Demand] = {}  # by the job's order of arrival, as all below
        self._speeds: dict[int, float] = {}  # where it was not the ideal one
        self._groups: dict[int, tuple[Split, ShareOption, Group]] = {}

    def decide(self, view: View) -> Decision:
        """Return the plan of this round."""
        now_s = view.now_s
        if unchanged := keep_until_repaid(view):
            return unchanged
        if self._servers is None:
            self._servers = servers_of(view.cluster)
        for job in view.finished:
            self._demands.pop(job.order, None)
        for job in view.arrived:
            wants = self._demand_of(job.spec)
            self._demands[job.order] = replace(wants, job=job, tenant=job.spec.user)
        if self._by_work:
            for job in view.jobs.values():
                wants = self._demands[job.order]
                self._demands[job.order] = replace(wants, remaining_s=job.remaining_s(now_s))
        if self._stay:
            self._note_places(view)
        plan = self._allocate(self._in_order(view, now_s), self._servers)
        self._groups = place(plan.grants, self._groups, view.cluster)
        self._speeds = {_job(g).order: g.option.speed for g in plan.grants if g.option is not g.demand.ideal}
        wake_s = None
        if self._drifts and view.jobs:
            wake_s = (now_s // ROUND_S + 1) * ROUND_S
        return Decision([group for _, _, group in self._groups.values()], wake_s)

    def _note_places(self, view: View) -> None:
        for job in view.jobs.values():
            placed = self._groups.get(job.order)
            here = placed[0] if placed is not None else ()
            if self._demands[job.order].here != here:
                self._demands[job.order] = replace(self._demands[job.order], here=here)

    def _in_order(self, view: View, now_s: float) -> list[Demand]:
        demands, speeds, rank = self._demands, self._speeds, self._rank
        if rank is by_arrival:
            return [demands[job.order] for job in view.jobs.values()]
        ranked = []
        for job in view.jobs.values():
            wants = demands[job.order]
            speed = speeds.get(job.order, wants.ideal.speed)
            ranked.append((rank(job, now_s, speed), job.order, wants))
        ranked.sort()
        return [wants for _, _, wants in ranked]


def place(
    grants: Sequence[ShareGrant], before: Mapping[int, tuple[Split, ShareOption, Group]], cluster: Cluster
) -> dict[int, tuple[Split, ShareOption, Group]]:
    """Assign GPU numbers to a plan's jobs.

    Args:
        grants: The plan: for each job its split (GPUs by server) and its share (CPUs and memory per GPU).
        before: The result for the plan before. A job whose split is unchanged keeps its GPUs; if its share is
            unchanged, too, it keeps its `Group` object.
        cluster: The cluster.

    Returns the split, the share and the group of each job, by the job's order of arrival.
    """
    now: dict[int, tuple[Split, ShareOption, Group]] = {}
    taken: set[int] = set()
    for grant in grants:
        job = _job(grant)
        old = before.get(job.order)
        if old is not None and old[0] == grant.split:
            same = old[1] is grant.option or old[1] == grant.option
            group = old[2] if same else _group(job, old[2].gpus, grant.option)
            now[job.order] = grant.split, grant.option, group
            taken.update(group.gpus)
    free: dict[int, list[int]] = {}
    for grant in grants:
        job = _job(grant)
        if job.order in now:
            continue
        gpus: list[int] = []
        for server, count in grant.split:
            if server not in free:
                free[server] = [gpu for gpu in cluster.gpus_of[server] if gpu not in taken]
            gpus += free[server][:count]
            del free[server][:count]
        now[job.order] = grant.split, grant.option, _group(job, tuple(gpus), grant.option)
    return now


def _job(grant: ShareGrant) -> JobState:
    job = grant.demand.job
    assert isinstance(job, JobState)
    return job


def _group(job: JobState, gpus: tuple[int, ...], option: ShareOption) -> Group:
    count = job.spec.gpus
    return Group(
        (job,),
        gpus,
        cpus=(option.cpus * count,),
        memory_gb=(option.memory_gb * count,),
        reason=f"{option.cpus:g} CPUs, {option.memory_gb:g} GB per GPU: {option.speed:.2f} of its fair speed",
    )
