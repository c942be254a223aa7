"""Allocate servers, trees and slots to jobs that start, by placement, routing and memory policies."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from controller.core.events import first_hop
from controller.errors import BadSpec
from controller.policies.memory import policy as memory
from controller.policies.memory.policy import demand, rate_of
from controller.policies.placement import policy as placement
from controller.policies.placement.flows import FlowState, JobFlows, Pools, flows_of, steady_state, tree_of
from controller.policies.registry import SCHEDULER, policies_of
from controller.policies.routing import policy as routing
from controller.policies.settings import AllocationPolicies, AllocationSettings
from controller.vocabulary import Job, Link, Region, Topology

# ---------------------------------------------------------------------------
# The part of a network that survives failures of servers, switches and links.


def surviving(
    topology: Topology,
    servers: Collection[str],
    switches: Collection[str],
    links: Collection[tuple[str, str]] = (),
) -> Topology | None:
    """Return the part of the cluster that is up; None if no switch with a server is left.

    If the switches that are up are not connected, the part with the most GPUs is returned (the first of equal
    ones): the other servers cannot be reached. O(links).

    Args:
        topology: The whole cluster.
        servers: Names of the servers that are down.
        switches: Names of the switches that are down.
        links: The two ends of each link that is down, in the order of the cluster's description.

    >>> from controller.vocabulary import fabrics
    >>> rack = fabrics.star(3)
    >>> [server.name for server in surviving(rack, {"h2"}, ()).servers]
    ['h1', 'h3']
    >>> surviving(rack, (), {"s1"}) is None
    True
    >>> [server.name for server in surviving(rack, (), (), {("h2", "s1")}).servers]
    ['h1', 'h3']
    """
    if not servers and not switches and not links:
        return topology
    down = {*servers, *switches}
    up = [
        link
        for link in topology.links
        if link.a not in down and link.b not in down and (link.a, link.b) not in links
    ]
    import networkx as nx  # only if something is down: the import takes as long as a command

    graph = nx.Graph()
    reachable = [switch.name for switch in topology.switches if switch.name not in down]
    graph.add_nodes_from(reachable)  # first: the parts come in the order of their first switches
    graph.add_edges_from((link.a, link.b) for link in up)
    parts = [_part(topology, nodes, up) for nodes in nx.connected_components(graph)]
    return max(
        (part for part in parts if part is not None), key=lambda part: part.gpus, default=None
    )  # max returns the first of equals


def _part(topology: Topology, nodes: set[str], links: Collection[Link]) -> Topology | None:
    kept = tuple(each for each in topology.servers if each.name in nodes)
    if not kept:
        return None
    switches = tuple(each for each in topology.switches if each.name in nodes)
    return replace(
        topology,
        root=topology.root if topology.root in nodes else switches[0].name,
        servers=kept,
        switches=switches,
        links=tuple(each for each in links if each.a in nodes and each.b in nodes),
    )


def goodput(topology: Topology, frame_bytes: int) -> Topology:
    """Return the cluster with link rates reduced to goodput: `frame_bytes` of each packet are headers."""
    payload = min(switch.payload_bytes for switch in topology.switches)
    part = payload / (payload + frame_bytes)
    return replace(topology, links=tuple(link.faster(part) for link in topology.links))


def allocate(topology: Topology, jobs: Sequence[Job], settings: AllocationSettings) -> Allocator:
    """Place and route jobs that start at the same time, as a core does.

    Jobs with given servers are placed on these servers if they have room. The placement policy places other
    jobs, if there is room. The jobs get no slots yet: `Allocator.divide` divides the slots.

    Raises BadSpec for unknown policies and for impossible results of policies.
    """
    if settings.placement == SCHEDULER:
        raise BadSpec(f"placement {SCHEDULER!r}: there is no scheduler here; want a placement policy")
    allocator = Allocator(topology, policies_of(settings), settings)
    allocator.start(jobs)
    return allocator


class Allocator:
    """Servers, trees and slots of the placed jobs. `division` is the last division of memory."""

    def __init__(
        self, topology: Topology, policies: AllocationPolicies, settings: AllocationSettings
    ) -> None:
        self.whole = goodput(topology, settings.frame_bytes)
        """The whole cluster, also the parts that are down, with link rates reduced to goodput."""
        self._up: Topology | None = self.whole
        self._policies = policies
        self._settings = settings
        self._rng = random.Random(settings.seed)
        self.placed: dict[str, Job] = {}
        self._crossing: dict[str, Job] = {}
        self._guests: set[str] = set()
        self._sums: dict[str, bool] = {}
        # jobs with GPUs of their own that can be reached: `aggregate` as submitted, in the order of `placed`
        self._reachable: dict[str, Job] = {}
        self._apart: set[str] = set()  # placed jobs that cannot be reached
        self._free: dict[str, int] = {}  # GPUs that `_reachable` leaves free, by server, in topology order
        self.problem: memory.MemoryProblem | None = None
        self.division: memory.MemoryDivision | None = None
        self.late: dict[str, float] = {}
        """Jobs that could not meet their deadlines at the last division of memory, but are not ended. The
        value is the time, in seconds, at which the job would end if it ran alone."""
        self.rerouted: list[str] = []
        """Names of the jobs that got another tree in the last `set_outages`."""
        self._count_anew()

    def decide_by(self, policies: AllocationPolicies, settings: AllocationSettings) -> None:
        """Replace the policies and settings for later decisions; placed jobs stay where they are."""
        self._policies, self._settings = policies, settings

    def change(self, topology: Topology) -> None:
        """Replace the cluster from now on.

        Call `set_outages` next, which gives jobs trees in the new cluster.
        """
        self.whole = goodput(topology, self._settings.frame_bytes)

    @property
    def topology(self) -> Topology:
        """The part of the cluster that is up; the whole cluster if nothing is up.

        Link rates are reduced to goodput.
        """
        return self._up or self.whole

    def start(self, batch: Sequence[Job]) -> set[str]:
        """Place the jobs in `batch` beside the running jobs; return the names of the jobs placed."""
        if not batch:
            return set()
        for job in batch:
            self._sums[job.name] = job.aggregate
        owners = list(self._reachable.values())
        fixed = [job for job in batch if job.servers and self.reaches(job.servers)]
        placed, _ = self._place(
            [job for job in batch if not job.servers], [*owners, *self._fixed(fixed, owners)]
        )
        names = {job.name for job in batch}
        started = [job for job in placed[len(owners) :] if job.name in names]
        for job in self._routed(started):
            self._keep(job)
        if any(len(job.hosts) > 1 for job in started):  # else it has not been decided anew which jobs sum
            for job in placed:
                if job.name not in names and self.placed[job.name] is not job:
                    self._keep(job)
        return {job.name for job in started}

    def _place(self, batch: Sequence[Job], running: Sequence[Job]) -> tuple[list[Job], tuple[str, ...]]:
        method = self._policies.placement
        if not batch or method is None or self._up is None:
            return list(running), ()
        free = self._free if len(running) == len(self._reachable) else None
        return placement.place_among(self.topology, batch, method, running, self._rng, free)

    def _fixed(self, batch: Iterable[Job], running: Sequence[Job]) -> list[Job]:
        """Return the jobs of `batch` that fit on their given servers, each with servers and a tree."""
        beside = list(running)
        free = dict(placement.PlacementProblem(self.topology, tuple(running), self._rng).free)
        for job in batch:
            wanted = {
                server: job.gpus_per_worker * workers for server, workers in Counter(job.servers).items()
            }
            if all(free[server] >= gpus for server, gpus in wanted.items()):
                free |= {server: free[server] - gpus for server, gpus in wanted.items()}
                beside.append(self._settled(job, job.servers, beside))
        return beside[len(running) :]

    def _settled(self, job: Job, servers: Sequence[str], running: Sequence[Job]) -> Job:
        if job.tree is not None:
            return replace(job, servers=tuple(servers))
        problem = placement.PlacementProblem(self.topology, tuple(running), self._rng)
        placed = placement.settle(problem, job, servers)
        if job.fallback is None or len(placed.hosts) == 1:
            return placed
        placed = replace(placed, fallback=job.fallback, tree=None)
        return replace(placed, tree=tree_of(self.topology, placed))

    def add(self, job: Job, servers: Sequence[str], *, guest: bool = False) -> None:
        """Place a job on these servers.

        A `guest` shares the GPUs of another job: its GPUs are not counted as taken.
        """
        self._sums[job.name] = job.aggregate
        settled = self._settled(job, servers, self._reached())
        if guest:
            self._guests.add(job.name)
        for each in self._routed([settled]):
            self._keep(each)

    def _keep(self, job: Job) -> None:
        self.placed[job.name] = job
        if len(job.hosts) > 1:
            self._crossing[job.name] = job
        self._count(job)

    def _count(self, job: Job) -> None:
        """Count a placed job's GPUs and traffic, on which the placement of other jobs depends."""
        name = job.name
        reached = self.reaches(job.hosts)
        if not reached:
            self._apart.add(name)
        if not reached or name in self._guests:
            return
        before = self._reachable.get(name)
        if before is None or before.servers != job.servers:
            self._take(before, -1)
            self._take(job, +1)
        sums = self._sums[name]
        self._reachable[name] = job if job.aggregate == sums else replace(job, aggregate=sums)

    def _take(self, job: Job | None, sign: int) -> None:
        """Count the GPUs of `job` as taken (`sign` +1) or as free again (`sign` -1); do nothing for None."""
        if job is not None:
            for server in job.servers:
                self._free[server] -= sign * job.gpus_per_worker

    def _count_anew(self) -> None:
        """Count the GPUs and the traffic of all placed jobs again, in the part of the cluster that is up."""
        self._reachable, self._apart = {}, set()
        self._free = {server.name: server.gpus for server in self.topology.servers}
        for job in self.placed.values():
            self._count(job)

    @property
    def owners(self) -> list[Job]:
        """The placed jobs, without guests: the GPUs of guests are not counted as taken (see `add`)."""
        return [job for name, job in self.placed.items() if name not in self._guests]

    def _reached(self) -> list[Job]:
        if not self._apart:
            return list(self.placed.values())
        return [job for name, job in self.placed.items() if name not in self._apart]

    def reaches(self, servers: Iterable[str]) -> bool:
        """Return whether all of these servers are up and can be reached."""
        if self._up is None:
            return False
        reachable = self._up.server
        return all(map(reachable.__contains__, servers))

    def set_outages(
        self, servers: Mapping[str, str], switches: Iterable[str], links: Iterable[tuple[str, str]] = ()
    ) -> dict[str, str]:
        """Set which servers, switches and links are down; jobs that start from now on avoid them.

        `servers` has the reason for each server that is down. Jobs whose trees use a switch or a link that is
        down get other trees; `rerouted` names these jobs.

        Returns:
            The reason, by job, for each job that has to be interrupted: one of its servers is down, or no
            path connects its servers.
        """
        down, cut = servers.keys(), {*links}
        dark = {*switches}
        before = self.topology
        self._up = surviving(self.whole, down, dark, cut)
        self._count_anew()
        broken = " and ".join([*sorted(dark), *(f"link {a}-{b}" for a, b in sorted(cut))])
        self.rerouted = []
        lost: dict[str, str] = {}
        stranded: list[Job] = []
        for name, job in list(self.placed.items()):
            if at := [server for server in job.hosts if server in down]:
                lost[name] = f"server {at[0]} is down: {servers[at[0]]}"
            elif len(job.hosts) > 1 and not self.reaches(job.hosts):
                lost[name] = f"{broken} down: no path is left between its servers"
            elif name in self._crossing and not self._stands(job, before):
                stranded.append(job)
        for job in stranded:
            self._reroute(job, {each.name for each in stranded} - {*self.rerouted})
        return lost

    def _stands(self, job: Job, before: Topology) -> bool:
        """Return whether a job can keep its tree.

        All links of the tree must be up. The tree's root must still reach the job's fallback server, and the
        first link on the path there must be the same as in `before`: the job's table entries contain that
        link. Ordinary forwarding finds the other links of the path. `before` is the part of the cluster that
        was up until now.
        """
        assert self._up is not None
        assert job.tree is not None
        tree, up = job.tree, self._up
        ways = all(parent in up.neighbours.get(child, ()) for child, parent in tree.parents.items())
        if not ways or tree.root not in up.switch:
            return False
        if job.fallback is None:  # it may have got none because all other servers were down
            return job.mode != "shared" or up.server.keys() <= {*job.hosts}
        return job.fallback in up.server and _leaves(up, job) == _leaves(before, job)

    def _reroute(self, job: Job, stranded: Collection[str]) -> None:
        """Give a job another tree over its servers, chosen as if the jobs in `stranded` used no network."""
        beside = [each for each in self._reached() if each.name not in stranded]
        free = replace(job, fallback=None, tree=None)
        self._keep(self._routed([self._settled(free, job.servers, beside)])[0])
        self.rerouted.append(job.name)

    def crosses(self, name: str) -> bool:
        """Return whether a job has servers and uses the network."""
        return name in self._crossing

    def stop(self, name: str) -> None:
        """Remove a job, and release its servers, tree and slots."""
        self.placed.pop(name, None)
        self._take(self._reachable.pop(name, None), -1)
        self._apart.discard(name)
        self._crossing.pop(name, None)
        self._guests.discard(name)
        self._sums.pop(name, None)

    def _routed(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs with trees from the routing policy.

        A job for which the policy has no tree keeps its own.
        """
        method = self._policies.routing
        crossing = [job for job in jobs if len(job.hosts) > 1]
        if method is None or not crossing:
            return jobs
        free = [replace(job, tree=None) for job in crossing]
        problem = routing.RoutingProblem(self.topology, tuple(free), self._settings.draws, self._rng)
        trees = routing.check(problem, method(problem))
        return [replace(job, tree=trees[job.name]) if job.name in trees else job for job in jobs]

    @property
    def state(self) -> FlowState:
        """Steady rates and bottlenecks of the placed jobs, as if all jobs could use all slots."""
        return steady_state(self.topology, list(self.placed.values()))

    @property
    def crossing(self) -> list[Job]:
        """The jobs that use the network, in order of their starts."""
        return list(self._crossing.values())

    def measure(self, job: Job) -> None:
        """Replace the properties that can be measured of the placed job that has the name of `job`.

        `job` has the new values: compute time, overlap, skew, layer sizes and slot hold time. Other
        properties do not change. A job that is not placed is ignored.
        """
        for known in (self.placed, self._crossing):
            if job.name in known:
                known[job.name] = replace(
                    known[job.name],
                    compute_s=job.compute_s,
                    overlap=job.overlap,
                    skew_s=job.skew_s,
                    layers_bytes=job.layers_bytes,
                    hold_s=job.hold_s,
                )
        if job.name in self.placed:
            self._count(self.placed[job.name])

    def divide(self, now_s: float, left: Mapping[str, float] | None = None) -> list[str]:
        """Divide the switches' slots among the jobs again; return the names of the jobs that the policy ends.

        `left` maps each job's name to its remaining iterations; None: no job has completed an iteration.
        """
        self.late = {}
        jobs = tuple(
            self._with_progress(job, now_s, job.iterations if left is None else left[job.name])
            for job in self.crossing
        )
        held = self.division.regions if self.division is not None else {}
        held = {job.name: self._up_of(held[job.name]) for job in jobs if job.name in held}
        self.problem = memory.MemoryProblem(jobs, self.topology, now_s, self._settings.reading, held)
        self.division = memory.check(self.problem, self._policies.memory(self.problem))
        standing = self.division.standing
        return [job.name for job in jobs if standing[job.name] is memory.SlotStatus.ENDED]

    def _up_of(self, regions: Mapping[str, Region]) -> Mapping[str, Region]:
        """Return the regions whose switch is up and has enough slots for the region, by switch."""
        known = self.topology.switch
        return {
            switch: region
            for switch, region in regions.items()
            if switch in known and region.end <= known[switch].slots
        }

    def _with_progress(self, job: Job, now_s: float, left: float) -> Job:
        """Return the job as the memory policy sees it: with `left` iterations and an adjusted deadline.

        The adjusted deadline is earlier than the job's own deadline by a safety margin. If the job can meet
        its own deadline but not the earlier one, the policy sees the own deadline. The policy sees no
        deadline if it has passed, or if the job cannot meet it and continues anyway (`Job.on_late`).
        """
        due_s, arrival_s = job.due_s, min(now_s, job.arrival_s)
        deadline_s = None if due_s is None or due_s <= now_s else due_s - arrival_s
        seen = job.later(max(1, math.ceil(left - 1e-6)), arrival_s, deadline_s)
        if due_s is None or seen.deadline_s is None:
            return seen
        early = replace(seen, deadline_s=due_s - (due_s - now_s) * self._settings.margin - arrival_s)
        problem = memory.MemoryProblem((early,), self.topology, now_s, self._settings.reading)
        link_bps, reading = problem.link_bps(early), self._settings.reading
        if demand(early, now_s=now_s, link_bps=link_bps, reading=reading).feasible:
            return early
        need = demand(seen, now_s=now_s, link_bps=link_bps, reading=reading)
        if job.on_late == "end" or need.feasible:
            return seen
        self.late[job.name] = need.estimate_s
        return replace(seen, deadline_s=None)

    def flows(self) -> JobFlows:
        """Return the flows of the jobs in `crossing`, in the order of `crossing`.

        The number of a job's slots limits the rate of its flow.
        """
        jobs, limits = self.crossing, []
        numbers: dict[tuple[str, Region], int] = {}
        bits: list[float] = []
        pool_by_job: dict[tuple[str, str], int] = {}
        regions = self.division.regions if self.division is not None else {}
        switches = self.topology.switch
        for job in jobs:
            limit = math.inf
            for at, region in regions.get(job.name, {}).items():
                if (at, region) not in numbers:
                    numbers[at, region] = len(bits)
                    bits.append(region.size * switches[at].payload_bytes * 8.0)
                pool_by_job[job.name, at] = numbers[at, region]
                if job.mode == "exclusive":
                    limit = min(limit, rate_of(job, switches[at], region.size))
            limits.append(limit)
        empty = len(bits)
        pools = Pools(
            [*bits, 0.0],
            lambda job, at: pool_by_job.get((job.name, at), empty),
            lambda job, at: switches[at].rtt_s if job.hold_s is None else job.hold_s,
        )
        flows = flows_of(self.topology, jobs, pools)
        return replace(flows, limit_bps=np.array(limits, dtype=np.float64))

    def latency_s(self, job: Job) -> float:
        """Return the time of a tensor besides its transmission, in seconds: a round trip."""
        assert job.tree is not None
        return max(self.topology.switch[name].rtt_s for name in job.tree.switches)


def _leaves(topology: Topology, job: Job) -> str:
    """Return the node after the root of a job's tree on the path to its fallback server.

    Returns "" if the root or the fallback server is not in `topology`.
    """
    assert job.tree is not None
    assert job.fallback is not None
    if job.tree.root not in topology.switch or job.fallback not in topology.server:
        return ""
    return first_hop(topology, job.tree.root, job.fallback)
