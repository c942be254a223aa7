"""The policy `joint`: GPUs, servers, trees and slots of all jobs in one decision.

A place consists of servers, a fallback server and a tree. The worth of a place is NetPack's objective
(`placement.netpack.worth`), computed with the measured time for which a packet holds its slot. The root of a
tree is the summing switch nearest to the fallback server, or the switch of the fallback server's rack. For
each root, the candidates are the tree of shortest paths, and trees over other switches without servers. So a
job avoids the links and slots that other jobs use.

>>> from controller.policies.placement.policy import PlacementProblem, settle
>>> from controller.vocabulary import Job, fabrics
>>> racks = fabrics.leaf_spine(2, 2, 2)
>>> job = settle(PlacementProblem(racks, (), random.Random(0)), Job(name="a", workers=2), ["h1", "h3"])
>>> [sorted(each.tree.switches) for each in with_candidate_trees(racks, job)]
[['leaf1', 'leaf2', 'spine1'], ['leaf1', 'leaf2', 'spine2']]

At every decision, jobs choose in the order of the policy `on-time` (urgent deadlines first, then shortest
remaining service). Each job gets the place of highest worth, with which most GPUs of the cluster compute. The
candidates are the job's present place, servers that no continuing job uses, and servers of jobs later in the
order. So a job with an urgent deadline gets fast links and free slots, jobs that fit on one server get
servers with slow links, and a job on a bad place moves when a better place is free. No GPUs are reserved, and
no slots are granted: the next jobs in the order may use all GPUs that are still free.

A job's urgency is computed from the best rate that the job could have alone in this cluster. So its deadline
is urgent earlier if no switch sums or links are slow, and a deadline that cannot be met takes no GPUs from
other jobs. A move costs the job's `restart_s`, which lowers the worth of the new place. A running job moves
only if the best place could save the time of several starts.

Without a network, `joint` decides as `on-time` does. O(jobs · places · water-filling) for each decision. A
running job that is as fast as alone, or that uses one server, keeps its place; no candidates are computed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from controller.policies.placement.baselines import locality_on_fast_links
from controller.policies.placement.flows import paths_up, racks_of, steady_state, tidy, ways_to
from controller.policies.placement.netpack import worth
from controller.policies.placement.policy import PlacementProblem, settle
from controller.policies.scheduling.deadlines import DeadlineUrgency, OnTime
from controller.policies.scheduling.policy import Decision, Group, JobState, NetworkView, View
from controller.policies.scheduling.ranked import EXACT, DurationEstimates, Preemption, Rank, RankedPolicy
from controller.vocabulary import Cluster, Job, Topology, Tree

WAYS = 1
"""Number of alternatives to each tree of shortest paths; each alternative leads over another switch between
the racks."""


def with_candidate_trees(topology: Topology, job: Job) -> list[Job]:
    """Return copies of a placed job, one for each tree to compare, the job's own tree first."""
    if job.tree is None:
        return [job]
    racks = racks_of(topology, job)
    end = job.tree.root if job.fallback is None else topology.rack_of[job.fallback]
    found: list[Tree] = [job.tree]
    for root in dict.fromkeys((job.tree.root, end)):
        straight = _tree(topology, job, root, paths_up(racks, root, topology.towards(root)))
        others = (_tree(topology, job, root, each) for each in _detours(topology, racks, root, straight))
        found += [tree for tree in (straight, *others) if tree not in found]
    return [job.on(job.servers, job.fallback, tree) for tree in found]


def _tree(topology: Topology, job: Job, root: str, parents: dict[str, str]) -> Tree:
    able = frozenset(name for name in (root, *parents) if topology.switch[name].aggregates)
    return tidy(topology, job, Tree(root, parents, able))


def _detours(topology: Topology, racks: Sequence[str], root: str, straight: Tree) -> Iterator[dict[str, str]]:
    """Yield alternatives to the tree `straight`, each over a switch that `straight` does not use.

    Such a switch has no servers. Only the `WAYS` nearest ones are tried, so that no tree takes a long detour.
    An alternative is given as the parent of each of its nodes.
    """
    if all(rack == root for rack in racks):
        return
    ways = ways_to(topology, [*racks, root])
    between = [
        each.name
        for each in topology.switches
        if each.name not in topology.racks and each.name not in straight.switches
    ]
    nearest = sorted(between, key=lambda name: int(ways[topology.number_of[name]]))
    for middle in nearest[:WAYS]:
        parents: dict[str, str] = {}
        for rack in racks:
            way = [*topology.way(rack, middle)[:-1], *topology.way(middle, root)]
            if rack == root or len(set(way)) < len(way):
                continue
            for node, above in pairwise(way):
                if node in parents:
                    break
                parents[node] = above
        if all(rack == root or rack in parents for rack in racks):
            yield parents


def rate_alone_bps(topology: Topology, job: Job, servers: Sequence[str]) -> float:
    """Return the best rate of a job's gradients on these servers of an empty cluster, bits per second."""
    problem = PlacementProblem(topology, (), random.Random(0))
    options = with_candidate_trees(topology, on_servers(problem, job, servers))
    return max(float(steady_state(topology, [each], measured=True).steady.rate_bps[0]) for each in options)


def on_servers(problem: PlacementProblem, job: Job, servers: Sequence[str]) -> Job:
    """Return a job on these servers with a fallback server and a tree of shortest paths."""
    return settle(problem, job.on((), job.fallback, None), servers)


SLOWED = 1.02
"""A running job keeps its place if its iteration time is at most `SLOWED` times its iteration time alone."""
CLOSE = 0.02
"""Maximum difference in worth from the best place, as a fraction of a job's GPUs, at which another place is
as good. The first place within this difference is chosen; a job's present place is the first."""
PAYS = 4
"""Other places are tried for a running job only if its best place could save more time than `PAYS` starts of
the job take."""
STARTS = 2
"""Number of job starts that a preemption costs: the new job's, and later the preempted job's second start."""


class Joint(OnTime):
    """Policy that decides which jobs run, on which servers and over which trees."""

    name = "joint"

    def __init__(self, estimates: DurationEstimates = EXACT) -> None:
        self.urgency = DeadlineUrgency(estimates, alone_s=self.alone_s)
        self._ranked = RankedPolicy(self.name, self.rank, moves=Preemption.PREEMPT)
        self._network: NetworkView | None = None
        self._alone: dict[str, tuple[Job, Topology, float]] = {}

    def alone_s(self, job: JobState) -> float:
        """Return the seconds per iteration of a job alone on its best place in the available cluster."""
        if self._network is None:
            return job.alone_s
        described, topology = self._network.job(job.spec.name), self._network.topology
        known = self._alone.get(job.spec.name)
        if known is None or known[0] is not described or known[1] is not topology:
            known = described, topology, job.alone_s * _slower_here(topology, described)
            self._alone[job.spec.name] = known
        return known[2]

    def rank(self, job: JobState, now_s: float) -> Rank:
        """Return the rank of a job: jobs of lowest rank choose their places first.

        For a waiting job without an urgent deadline, the rank includes the cost of a preemption (`STARTS`).
        """
        later, key = self.urgency.rank(job, now_s)
        waits = later and job.group is None
        return later, key + (STARTS * job.spec.restart_s * job.spec.gpus if waits else 0.0)

    def decide(self, view: View) -> Decision:
        """Return the groups to run, the jobs' places, and the time when the next deadline becomes urgent."""
        self._network = view.network
        for job in view.finished:
            self._alone.pop(job.spec.name, None)
        return super().decide(view)

    def _chosen(self, view: View) -> Decision:
        return super()._chosen(view) if view.network is None else self._placed(view, view.network)

    def _placed(self, view: View, network: NetworkView) -> Decision:
        """Return the decision that gives each job in turn the place of highest worth beside the running jobs.

        For each job, the running jobs are the jobs placed before it, and the continuing jobs after it that
        still have their GPUs.
        """
        now_s = view.now_s
        order = sorted(view.jobs.values(), key=lambda job: (*self.rank(job, now_s), job.order))
        continuing = _that_go_on(order, view.cluster.gpus)
        room = _Room(view.cluster, network.topology, continuing)
        groups: list[Group] = []
        placed: dict[str, Job] = {}
        stay = [*view.kept, *(job for group in continuing for job in group.jobs)]
        beside = {job.spec.name: network.placed(job.spec.name) for job in stay}
        held = {job.spec.name: group.gpus for group in continuing for job in group.jobs}
        for job in order:
            name = job.spec.name
            beside.pop(name, None)
            if job.spec.gpus > room.left:
                continue
            running = [each for each in beside.values() if each is not None and each.tree is not None]
            place = self._place(job, now_s, room, network, running)
            if place is None:
                continue
            held.pop(name, None)
            beside[name] = place
            if job.group is not None and room.holds(job.group.gpus) and place.servers == room.at(job, place):
                room.keep(job.group.gpus)
                groups.append(job.group)
            else:
                groups.append(Group((job,), room.take(place)))
                placed[name] = place
                for other in [other for other, gpus in held.items() if not room.holds(gpus)]:
                    del held[other]
                    beside.pop(other, None)
        return Decision(groups, placed=placed)

    def _place(
        self, job: JobState, now_s: float, room: _Room, network: NetworkView, running: Sequence[Job]
    ) -> Job | None:
        """Return `job` with its best place; None if too few GPUs are free."""
        options: list[Job] = []
        current = network.placed(job.spec.name)
        stays = current is not None and job.group is not None and room.holds(job.group.gpus)
        if stays and current is not None:
            if current.tree is None or not self._pays(job, now_s):
                return current
            options.append(current)
        topology, described = network.topology, network.job(job.spec.name)
        problem = PlacementProblem(topology, tuple(running), random.Random(0))
        left_s = self.urgency.left_s(job, now_s)
        lasts = left_s / (left_s + job.spec.restart_s) if left_s > 0 else 1.0
        weights = [1.0] * len(options)
        for free, weight in ((room.idle, lasts), (room.free, lasts**STARTS)):
            vars(problem)["free"] = free
            servers = _servers(problem, described)
            if servers is not None and all(tuple(servers) != option.servers for option in options):
                options += with_candidate_trees(topology, on_servers(problem, described, servers))
                weights += [weight] * (len(options) - len(weights))
        if len(options) < 2:
            return options[0] if options else None
        values = [
            worth(problem, option, measured=True) * weight
            for option, weight in zip(options, weights, strict=True)
        ]
        enough = max(values) - CLOSE * job.spec.gpus
        return next(option for option, value in zip(options, values, strict=True) if value >= enough)

    def _pays(self, job: JobState, now_s: float) -> bool:
        """Return whether a running job could save the time of `PAYS` starts on the cluster's best place."""
        alone_s = self.alone_s(job)
        slower_s = job.iteration_s - alone_s
        several_s = PAYS * job.spec.restart_s
        return (
            job.iteration_s > SLOWED * alone_s
            and slower_s * self.urgency.left_s(job, now_s) > several_s * alone_s
        )


def _that_go_on(order: Sequence[JobState], gpus: int) -> list[Group]:
    """Divide `gpus` GPUs among the jobs in the order of `order`; return the running groups that get enough.

    The servers of the GPUs are not considered.
    """
    found: list[Group] = []
    for job in order:
        if job.spec.gpus <= gpus:
            gpus -= job.spec.gpus
            if job.group is not None:
                found.append(job.group)
    return found


def _servers(problem: PlacementProblem, job: Job) -> Sequence[str] | None:
    """Return each worker's server: the servers that the job names, or else the best servers for the job.

    Returns None if these servers have too few free GPUs.
    """
    if not job.servers:
        return locality_on_fast_links(problem, job)
    needs = Counter(job.servers)
    free = all(problem.free.get(at, 0) >= n * job.gpus_per_worker for at, n in needs.items())
    return job.servers if free else None


def _slower_here(topology: Topology, job: Job) -> float:
    """Return a job's iteration time on its best place here, divided by the time on the fastest links."""
    free = {server.name: server.gpus for server in topology.servers}
    problem = PlacementProblem(topology, (), random.Random(0))
    vars(problem)["free"] = free
    servers = _servers(problem, job)
    if servers is None or len(set(servers)) == 1:
        return 1.0
    fastest_s = job.iteration_at_s(topology.fastest_bps)
    here_s = job.iteration_at_s(rate_alone_bps(topology, job, servers))
    return here_s / fastest_s if fastest_s > 0 else 1.0


class _Room:
    """GPUs that a decision has not assigned yet.

    `free` has the number of these GPUs on each server. `idle` has the number of these GPUs, on each server,
    that no continuing group (`groups`) uses. `left` is the sum of `free`.
    """

    def __init__(self, cluster: Cluster, topology: Topology, groups: Sequence[Group]) -> None:
        self._name_of = [cluster.servers[node].name for node in cluster.node_of]
        held = {gpu for group in groups for gpu in group.gpus}
        self._held = held
        self._gpus: dict[str, list[int]] = {server.name: [] for server in topology.servers}
        for gpu, name in enumerate(self._name_of):
            if gpu not in cluster.unavailable and name in self._gpus:
                self._gpus[name].append(gpu)
        self.free = {name: len(gpus) for name, gpus in self._gpus.items()}
        self.idle = {name: sum(gpu not in held for gpu in gpus) for name, gpus in self._gpus.items()}
        self.left = sum(self.free.values())

    def holds(self, gpus: Sequence[int]) -> bool:
        """Return whether all of these GPUs are free."""
        return all(gpu in self._gpus.get(self._name_of[gpu], ()) for gpu in gpus)

    def at(self, job: JobState, place: Job) -> tuple[str, ...]:
        """Return the server of each worker of a running job; `place` has the number of GPUs per worker."""
        assert job.group is not None
        return tuple(self._name_of[gpu] for gpu in job.group.gpus)[:: place.gpus_per_worker]

    def keep(self, gpus: Sequence[int]) -> None:
        """Reserve these GPUs."""
        for gpu in gpus:
            name = self._name_of[gpu]
            self._gpus[name].remove(gpu)
            self.free[name] -= 1
            self.idle[name] -= gpu not in self._held
        self.left -= len(gpus)

    def take(self, place: Job) -> tuple[int, ...]:
        """Reserve GPUs on the server of each worker, idle GPUs first; return the GPUs' numbers."""
        taken: list[int] = []
        for name in place.servers:
            gpus = sorted(self._gpus[name], key=lambda gpu: (gpu in self._held, gpu))
            taken += gpus[: place.gpus_per_worker]
            self.keep(gpus[: place.gpus_per_worker])
        return tuple(taken)
