"""Allocators: they divide servers' GPUs, CPUs and memory among jobs in priority order (Synergy, OSDI'22).

- `proportional`: every GPU comes with an equal part of the CPUs and memory, independent of the job's needs;
- `greedy` (Synergy-GREEDY, 4.1): each job gets its ideal share or waits;
- `tune` (Synergy-TUNE, 4.2): jobs get their ideal shares if these fit, else fair shares; no GPU is idle;
- `top_up`: distributes the resources that an allocation leaves unused; not part of Synergy;
- `drf`: dominant resource fairness among tenants, with static demands (Ghodsi et al., NSDI'11), a baseline;
- `tetris`: places first the jobs whose demands match the free resources best, minus a penalty for remaining
  work (Grandl, SIGCOMM'14).

`FreeShares` has the free resources of each server while an allocation is built; `SharePlan` is the result.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from controller.policies.scheduling.synergy.demand import (
    Demand,
    Servers,
    ShareOption,
    Split,
    within,
)

NOTHING = ShareOption(0.0, 0.0, 0.0)

SLACK = 1e-6
"""Rounding error allowed in sums of shares."""


@dataclass(frozen=True, slots=True)
class ShareGrant:
    """The resources of a job that runs.

    `option` is its share of CPUs and memory for each GPU, and `split` the number of its GPUs on each server.
    CPUs and memory are on the same servers as the GPUs.
    """

    demand: Demand
    option: ShareOption
    split: Split


@dataclass(frozen=True, slots=True)
class SharePlan:
    """Plan of one round: the running and the waiting jobs, both in priority order."""

    grants: tuple[ShareGrant, ...]
    waiting: tuple[Demand, ...] = ()

    @property
    def throughput(self) -> float:
        """The sum of the speeds of all GPUs in use; GPU-proportional shares give 1 each."""
        return sum(g.demand.gpus * g.option.speed for g in self.grants)

    def options(self) -> dict[Hashable, ShareOption]:
        """Return each running job's share."""
        return {g.demand.job: g.option for g in self.grants}


class FreeShares:
    """Free GPUs, CPUs and memory of servers.

    Of the servers with room, a job goes to the server with the fewest free GPUs, then CPUs, then memory; with
    `spread`, to the server with the most free CPUs, then the fewest GPUs.
    """

    def __init__(self, servers: Servers, *, spread: bool = False) -> None:
        self.servers = servers
        self._free = [
            (shape.gpus, float(shape.cpus), float(shape.memory_gb), number)
            for number, shape in enumerate(servers.shapes)
        ]
        self._spread = spread
        self._order = sorted(self._rank(state) for state in self._free)  # servers with a free GPU, best first
        self._nowhere: set[tuple[int, ShareOption]] = set()  # shares for which `find` found no room

    def free(self, server: int) -> tuple[int, float, float]:
        """Return a server's free GPUs, CPUs and memory in GB."""
        return self._free[server][:3]

    @property
    def free_gpus(self) -> int:
        """Number of free GPUs."""
        return sum(state[0] for state in self._free)

    def fits(self, server: int, gpus: int, option: ShareOption) -> bool:
        """Return whether a server has `gpus` free GPUs, and this share for each."""
        free, cpus, memory, _ = self._free[server]
        return (
            free >= gpus and cpus + SLACK >= gpus * option.cpus and memory + SLACK >= gpus * option.memory_gb
        )

    def allocate(self, split: Split, option: ShareOption) -> None:
        """Reserve the share `option` for each GPU of a split."""
        for server, gpus in split:
            self._change(server, gpus, gpus * option.cpus, gpus * option.memory_gb)

    def release(self, split: Split, option: ShareOption) -> None:
        """Release the share `option` of each GPU of a split: undo `allocate`."""
        self._nowhere.clear()
        for server, gpus in split:
            self._change(server, -gpus, -gpus * option.cpus, -gpus * option.memory_gb)

    def _change(self, server: int, gpus: int, cpus: float, memory_gb: float) -> None:
        old = self._free[server]
        new = (old[0] - gpus, old[1] - cpus, old[2] - memory_gb, server)
        self._free[server] = new
        if old[0] > 0:
            del self._order[bisect_left(self._order, self._rank(old))]
        if new[0] > 0:
            insort(self._order, self._rank(new))

    def _rank(self, state: tuple[int, float, float, int]) -> tuple[float, float, float, int]:
        return (-state[1], state[0], state[2], state[3]) if self._spread else state

    def find(self, job: Demand, option: ShareOption) -> Split | None:
        """Return servers for a job with this share, or None.

        They are the servers that the job is on, if these have room; else the best server with room for the
        whole job; else the fewest servers that have room together. O(servers), O(servers log servers) if the
        job has to be split.
        """
        if job.here and all(self.fits(server, gpus, option) for server, gpus in job.here):
            return job.here
        return self._anywhere(job.gpus, option)

    def _anywhere(self, gpus: int, option: ShareOption) -> Split | None:
        if (gpus, option) in self._nowhere:
            return None
        need_cpus, need_memory = gpus * option.cpus - SLACK, gpus * option.memory_gb - SLACK
        for _, _, _, server in self._order:
            free, cpus, memory, _ = self._free[server]
            if free >= gpus and cpus >= need_cpus and memory >= need_memory:
                return ((server, gpus),)
        split = self._fewest(gpus, option) if gpus > 1 else None
        if split is None:
            self._nowhere.add((gpus, option))
        return split

    def find_gpus(self, job: Demand) -> Split | None:
        """Return servers with free GPUs for a job, as `find` does, but without regard to CPUs and memory."""
        return self.find(job, NOTHING)

    def _fewest(self, gpus: int, option: ShareOption) -> Split | None:
        rooms = []
        for _, _, _, server in self._order:
            free, cpus, memory, _ = self._free[server]
            room = free
            if option.cpus > 0:
                room = min(room, int((cpus + SLACK) / option.cpus))
            if option.memory_gb > 0:
                room = min(room, int((memory + SLACK) / option.memory_gb))
            rooms.append((-room, server))
        split = []
        for room, server in sorted(rooms):
            here = min(gpus, -room)
            if here <= 0:
                break
            split.append((server, here))
            gpus -= here
        return tuple(split) if gpus == 0 else None


def runnable(demands: Iterable[Demand], gpus: int) -> tuple[list[Demand], list[Demand]]:
    """Choose jobs in priority order as long as `gpus` GPUs are enough for them.

    A job that no longer fits waits, and later jobs that fit are chosen. Returns the chosen jobs and the
    waiting jobs.
    """
    chosen, waiting = [], []
    for job in demands:
        if job.gpus <= gpus:
            chosen.append(job)
            gpus -= job.gpus
        else:
            waiting.append(job)
    return chosen, waiting


def proportional(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Give each job its GPUs with their fair share of CPUs and memory. O(jobs · servers).

    Jobs are chosen in priority order: every job for which enough GPUs are free runs. Of the chosen jobs,
    large jobs are placed first, so that they use whole servers. A GPU's fair share is an equal part of the
    GPU's server. If the servers of a job differ, all GPUs of the job get the smallest of their fair shares.
    """
    fleet = FreeShares(servers)
    chosen, waiting = runnable(demands, fleet.free_gpus)
    grants = {}
    for job in sorted(chosen, key=lambda d: -d.gpus):
        split = fleet.find_gpus(job)
        assert split is not None  # `runnable` has counted the GPUs
        fair = _fair(job, servers, split)
        fleet.allocate(split, fair)
        grants[job.job] = ShareGrant(job, fair, split)
    return SharePlan(tuple(grants[job.job] for job in chosen), tuple(waiting))


def _fair(job: Demand, servers: Servers, split: Split) -> ShareOption:
    shapes = [servers.shapes[server] for server, _ in split]
    cpus = min(shape.fair_cpus for shape in shapes)
    memory_gb = min(shape.fair_memory_gb for shape in shapes)
    return ShareOption(cpus, memory_gb, job.speed(cpus, memory_gb))


def greedy(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Place each job, in priority order, on servers where its ideal share is free; skip it if there are none.

    O(jobs · servers). The weakness of this allocator: GPUs can be idle because CPUs or memory are used up.
    """
    fleet = FreeShares(servers)
    grants, waiting = [], []
    for job in demands:
        split = fleet.find(job, job.ideal) if job.gpus <= fleet.free_gpus else None
        if split is None:
            waiting.append(job)
            continue
        fleet.allocate(split, job.ideal)
        grants.append(ShareGrant(job, job.ideal, split))
    return SharePlan(tuple(grants), tuple(waiting))


def tune(demands: Sequence[Demand], servers: Servers, *, spread: bool = False) -> SharePlan:
    """Return the plan of Synergy-TUNE.

    Jobs are chosen in priority order as long as the cluster has enough GPUs. The chosen jobs are placed
    largest demand first, by GPUs, then CPUs, then memory:

    1. with the ideal share on the fullest server that has it free, else on as few servers as possible;
    2. if the ideal share is not free, with the fallback share (`floor`), on servers chosen as in step 1;
    3. if the fallback share is not free, on servers with enough free GPUs. Jobs on these servers get their
       fallback shares, one after the other, until the new job fits: jobs on the fewest servers first, and of
       these the job with most CPUs per GPU.

    Step 3 always ends: on a server where all jobs have fallen back, every free GPU has its fair share left.
    So no job runs slower than with GPU-proportional shares. As published, resources freed by jobs that fell
    back go to jobs that are placed later, not to jobs placed already: `top_up` does that.
    O(jobs · (servers + GPUs per server)).

    With `spread`, which is not part of the published algorithm, step 1 takes the server with the most free
    CPUs instead of the fullest one: jobs of high demand then meet jobs of low demand more often.
    """
    chosen, waiting = runnable(demands, servers.gpus)
    tuning = TuneAllocation(servers, spread=spread)
    for job in sorted(chosen, key=lambda d: (-d.gpus, -d.ideal.cpus, -d.ideal.memory_gb)):
        tuning.add(job, job.ideal)
    return SharePlan(tuple(tuning.grant(job) for job in chosen), tuple(waiting))


class TuneAllocation:
    """An allocation under construction, in which placed jobs can still get smaller (fallback) shares."""

    def __init__(self, servers: Servers, *, spread: bool = False) -> None:
        self._fleet = FreeShares(servers, spread=spread)
        self._options: dict[Hashable, ShareOption] = {}
        self._splits: dict[Hashable, Split] = {}
        self._on_server: list[list[Demand]] = [[] for _ in range(len(servers))]

    def add(self, job: Demand, wish: ShareOption) -> None:
        """Place one job with the share `wish` if possible, else `job.floor`; enough GPUs must be free."""
        for option in (wish,) if wish is job.floor else (wish, job.floor):
            split = self._fleet.find(job, option)
            if split is not None:
                self.run(job, option, split)
                return
        self._squeeze_in(job)

    def run(self, job: Demand, option: ShareOption, split: Split) -> None:
        """Place one job with this share on these servers, which have room for it."""
        self._fleet.allocate(split, option)
        self._options[job.job], self._splits[job.job] = option, split
        for server, _ in split:
            self._on_server[server].append(job)

    def grant(self, job: Demand) -> ShareGrant:
        """Return the resources granted to a job."""
        return ShareGrant(job, self._options[job.job], self._splits[job.job])

    def _squeeze_in(self, job: Demand) -> None:
        split = self._fleet.find_gpus(job)
        assert split is not None  # `runnable` has counted the GPUs
        for server, gpus in split:
            peers = iter(self._peers_to_cut(server))
            while not self._fleet.fits(server, gpus, job.floor):
                self._fall_back(next(peers))
        self.run(job, job.floor, split)

    def _peers_to_cut(self, server: int) -> list[Demand]:
        peers = [p for p in self._on_server[server] if self._options[p.job] is not p.floor]

        def order(peer: Demand) -> tuple[int, float, float]:
            option = self._options[peer.job]
            return len(self._splits[peer.job]), -option.cpus, -option.memory_gb

        return sorted(peers, key=order)

    def _fall_back(self, job: Demand) -> None:
        split = self._splits[job.job]
        self._fleet.release(split, self._options[job.job])
        self._fleet.allocate(split, job.floor)
        self._options[job.job] = job.floor


def top_up(plan: SharePlan, servers: Servers) -> SharePlan:
    """Return the plan with larger shares, from unused CPUs and memory of the jobs' servers.

    The step with the largest gain in speed for its resources comes first; ties go to the job that is earlier
    in the plan. TUNE has only an ideal and a fair share for each job; `top_up` uses the options in between.
    No job's share becomes smaller. There is at most one step per job and option; each considers only the jobs
    on the servers that the previous step changed.
    """
    fleet = FreeShares(servers)
    current = list(plan.grants)
    on_server: list[list[int]] = [[] for _ in range(len(servers))]
    for position, grant in enumerate(current):
        fleet.allocate(grant.split, grant.option)
        for server, _ in grant.split:
            on_server[server].append(position)
    steps: dict[int, tuple[float, ShareOption]] = {}
    stale: Iterable[int] = range(len(current))
    while True:
        for position in stale:
            step = _best_step(current[position], fleet)
            if step is None:
                steps.pop(position, None)
            else:
                steps[position] = step
        if not steps:
            return SharePlan(tuple(current), plan.waiting)
        position = max(steps, key=lambda p: (steps[p][0], -p))
        grant, option = current[position], steps[position][1]
        fleet.release(grant.split, grant.option)
        fleet.allocate(grant.split, option)
        current[position] = ShareGrant(grant.demand, option, grant.split)
        stale = {other for server, _ in grant.split for other in on_server[server]}


def _best_step(grant: ShareGrant, fleet: FreeShares) -> tuple[float, ShareOption] | None:
    """Return the free larger share with the best ratio of gain to cost, as (ratio, share).

    The gain is in speed, the cost in fair shares of CPUs and memory. Returns None if no free share is faster.
    """
    now, servers = grant.option, fleet.servers
    if now.speed >= grant.demand.ideal.speed:
        return None
    best: tuple[float, ShareOption] | None = None
    for option in grant.demand.options:
        cpus, memory = option.cpus - now.cpus, option.memory_gb - now.memory_gb
        if option.speed <= now.speed or not all(
            within(gpus * cpus, fleet.free(server)[1]) and within(gpus * memory, fleet.free(server)[2])
            for server, gpus in grant.split
        ):
            continue
        cost = max(0.0, cpus / servers.fair_cpus) + max(0.0, memory / servers.fair_memory_gb)
        gain = (option.speed - now.speed) / max(cost, 1e-9)
        if best is None or gain > best[0]:
            best = (gain, option)
    return best


def dominant_share(job: Demand, servers: Servers) -> float:
    """Return the largest of the fractions of the cluster's resources that the job's ideal share uses."""
    return job.gpus * max(
        1 / servers.gpus,
        job.ideal.cpus / servers.cpus,
        job.ideal.memory_gb / servers.memory_gb,
    )


def drf(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Repeatedly place the next job of the tenant with the smallest dominant share.

    Jobs of one tenant keep their order. Of tenants with equal shares, the one whose next job has the smallest
    dominant share comes first. Jobs get their ideal shares; a job that fits on no server is skipped. If every
    job has its own tenant, jobs are placed in order of dominant share. O(jobs · (tenants + servers)).
    """
    fleet = FreeShares(servers)
    queues: dict[Hashable, deque[Demand]] = {}
    for index, job in enumerate(demands):
        queues.setdefault(job.tenant or (index,), deque()).append(job)
    shares = dict.fromkeys(queues, 0.0)
    grants, waiting = [], []
    while queues:
        tenant = min(queues, key=lambda t: (shares[t], dominant_share(queues[t][0], servers)))
        job = queues[tenant].popleft()
        if not queues[tenant]:
            del queues[tenant]
        split = fleet.find(job, job.ideal) if job.gpus <= fleet.free_gpus else None
        if split is None:
            waiting.append(job)
            continue
        fleet.allocate(split, job.ideal)
        shares[tenant] += dominant_share(job, servers)
        grants.append(ShareGrant(job, job.ideal, split))
    return SharePlan(tuple(grants), tuple(waiting))


def tetris(demands: Sequence[Demand], servers: Servers) -> SharePlan:
    """Repeatedly place the pair of job and server with the highest score; jobs get their ideal shares.

    The score is an alignment minus a penalty. The alignment is the dot product of the job's demand and the
    server's free resources, both as fractions of the largest server. The penalty is the job's remaining work
    (time times demand), scaled so that it is as large as the alignment on average. A job that needs several
    servers has the score of the emptiest server, and is placed on as few servers as possible. O(jobs² + jobs
    · servers): after each placement only the changed servers are scored again.
    """
    fleet = FreeShares(servers)
    open_jobs = dict(enumerate(demands))
    work = {i: j.remaining_s * sum(_parts(j, servers)) for i, j in open_jobs.items()}
    scores = {i: [_alignment(j, s, fleet) for s in range(len(servers))] for i, j in open_jobs.items()}
    weight = _weight([max(row) for row in scores.values()], list(work.values()))
    grants, left_over = [], []
    while open_jobs:
        index = max(open_jobs, key=lambda i: max(scores[i]) - weight * work[i])
        job = open_jobs.pop(index)
        split = _place(job, scores[index], fleet)
        if split is None:
            left_over.append(index)
            continue
        fleet.allocate(split, job.ideal)
        grants.append(ShareGrant(job, job.ideal, split))
        for server, _ in split:
            for i, other in open_jobs.items():
                scores[i][server] = _alignment(other, server, fleet)
    return SharePlan(tuple(grants), tuple(demands[i] for i in sorted(left_over)))


def _parts(job: Demand, servers: Servers) -> tuple[float, float, float]:
    shape = servers.largest
    gpus = job.gpus
    return gpus / shape.gpus, gpus * job.ideal.cpus / shape.cpus, gpus * job.ideal.memory_gb / shape.memory_gb


def _alignment(job: Demand, server: int, fleet: FreeShares) -> float:
    shape = fleet.servers.largest
    gpus, cpus, memory = _parts(job, fleet.servers)
    free_gpus, free_cpus, free_memory = fleet.free(server)
    return (
        gpus * free_gpus / shape.gpus + cpus * free_cpus / shape.cpus + memory * free_memory / shape.memory_gb
    )


def _weight(alignments: list[float], work: list[float]) -> float:
    total = sum(work)
    return sum(alignments) / total if total > 0 else 0.0


def _place(job: Demand, scores: list[float], fleet: FreeShares) -> Split | None:
    if job.gpus > fleet.free_gpus:
        return None
    if job.here:
        return fleet.find(job, job.ideal)
    fitting = [s for s in range(len(scores)) if fleet.fits(s, job.gpus, job.ideal)]
    if fitting:
        return ((max(fitting, key=lambda s: scores[s]), job.gpus),)
    return fleet.find(job, job.ideal)
