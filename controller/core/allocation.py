"""Servers, trees and slots of the jobs that the scheduler runs: placement, routing and memory, in that order.

The scheduler decides which jobs run on how many GPUs. The placement policy chooses the servers, unless
the placement setting is `SCHEDULER`: then the scheduler chooses them, too. A job for which no servers have
room waits, and its GPUs still count as used. Memory is divided again whenever jobs start, end or move, and
periodically.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from controller.core.desired import Place
from controller.policies.scheduling.errors import BadDecision, BadSpec
from controller.policies.scheduling.policy import SCHEDULER, Decision, Group, JobState
from controller.vocabulary import Cluster, Job, Topology

if TYPE_CHECKING:  # a core without a network needs no allocator
    from controller.core.allocator import Allocator
    from controller.policies.memory.policy import MemoryDivision, MemoryProblem
    from controller.policies.settings import AllocationPolicies, AllocationSettings

# ---------------------------------------------------------------------------
# Servers, switches and links that are down, and the GPUs that are unavailable because of them.


class Outages:
    """The failed servers, switches and links of a cluster.

    Args:
        cluster: The servers as the scheduler sees them.
        allocator: The allocator, which has each job's servers; None: the cluster has no network.
        own_places: Whether the scheduler's GPU numbers denote the GPUs of real servers. If not, GPUs are only
            counted, and any free numbers stand for the failed GPUs.
    """

    def __init__(self, cluster: Cluster, allocator: Allocator | None, *, own_places: bool) -> None:
        self.servers: dict[str, str] = {}
        """Reason for each failed server."""
        self.switches: dict[str, str] = {}
        """Reason for each failed switch."""
        self.links: dict[tuple[str, str], str] = {}
        """Reason for each failed link. The key is the pair of nodes `(link.a, link.b)`, as in the cluster's
        description."""
        self._cluster = cluster
        self._allocator = allocator
        self.own_places = own_places

    def __bool__(self) -> bool:
        return bool(self.servers or self.switches or self.links)

    def change(self, cluster: Cluster) -> None:
        """Replace the cluster; forget the failures of parts that the allocator's new cluster lacks."""
        self._cluster = cluster
        assert self._allocator is not None
        whole = self._allocator.whole
        ends = {frozenset((link.a, link.b)): (link.a, link.b) for link in whole.links}
        self.servers = {name: why for name, why in self.servers.items() if name in whole.server}
        self.switches = {name: why for name, why in self.switches.items() if name in whole.switch}
        self.links = {
            ends[frozenset(link)]: why for link, why in self.links.items() if frozenset(link) in ends
        }

    def unavailable_gpus(self, groups: Collection[Group], before: Collection[int]) -> frozenset[int]:
        """Return the unavailable GPUs that no running group uses.

        If GPUs are only counted (`own_places` is false), GPUs in `before` are chosen first; `before` is the
        result of the previous call.
        """
        used = {gpu for group in groups for gpu in group.gpus}
        if self.own_places:
            nodes = self._cluster.servers
            down = {number for number, node in enumerate(nodes) if not self._reaches(node.name)}
            return frozenset(gpu for gpu, node in enumerate(self._cluster.node_of) if node in down) - used
        assert self._allocator is not None
        missing = len(self._cluster.node_of) - self._had(used)
        free = [gpu for gpu in range(len(self._cluster.node_of)) if gpu not in used]
        free.sort(key=lambda gpu: (gpu in before, gpu))
        return frozenset(free[max(0, len(free) - missing) :])

    def _reaches(self, server: str) -> bool:
        if self._allocator is not None:
            return self._allocator.reaches([server])
        return server not in self.servers

    def _had(self, used: Collection[int]) -> int:
        """Return the number of GPUs in use plus the number of free GPUs on reachable servers.

        Args:
            used: Numbers of the GPUs in use.
        """
        allocator = self._allocator
        assert allocator is not None
        reached = {name for name in allocator.topology.server if allocator.reaches([name])}
        taken = dict.fromkeys(reached, 0)
        for job in allocator.owners:
            for server in job.servers:
                if server in taken:
                    taken[server] += job.gpus_per_worker
        free = sum(allocator.topology.server[name].gpus - taken[name] for name in reached)
        return len(used) + max(0, free)


class AllocationWatcher(Protocol):
    """Interface of objects that are notified when jobs are placed and memory is divided."""

    def on_placed(self, now_s: float, job: Job) -> None:
        """Record that a job has servers and a tree from now on."""

    def on_divided(self, now_s: float, problem: MemoryProblem, division: MemoryDivision) -> None:
        """Record a division of memory among the jobs of `problem`, which is valid from `now_s` on."""


class Allocation:
    """The network resources of the running jobs; belongs to one core.

    Attributes:
        allocator: Servers, trees and slots of each job.
        changes: Counter of changes that affect rates: jobs that start, end or move, and divisions of memory.
        watchers: Objects that are notified when jobs are placed and memory is divided.
    """

    def __init__(self, allocator: Allocator, servers: Cluster, settings: AllocationSettings) -> None:
        """Create an allocation without jobs; `servers` has the servers as the scheduler sees them."""
        self.allocator = allocator
        self.changes = 0
        self.watchers: list[AllocationWatcher] = []
        self._servers = servers
        self._settings = settings
        self._jobs: dict[str, Job] = {}
        self._places: dict[tuple[int, ...], tuple[str, ...]] = {}
        self._gpus_of: dict[str, tuple[int, ...]] = {}
        self._states: dict[str, JobState] = {}  # of the same jobs
        self._users: dict[tuple[int, ...], int] = {}  # how many of them have these GPUs
        self._lacking: dict[str, JobState] = {}  # jobs that run, and may have no servers
        self._due_s = math.inf
        self._moved = False
        self._reported_late: set[str] = set()
        self._wished: Mapping[str, Job] = {}  # places of the jobs that the last decision starts

    @property
    def own_places(self) -> bool:
        """Whether the scheduler itself chooses the servers of jobs (placement `SCHEDULER`)."""
        return self._settings.placement == SCHEDULER

    def decide_by(
        self, policies: AllocationPolicies, settings: AllocationSettings, servers: Cluster, now_s: float
    ) -> None:
        """Replace the policies from now on, and divide memory again at the next `update`.

        Args:
            policies: The policies.
            settings: Their settings.
            servers: The servers as the scheduler sees them.
            now_s: The time.
        """
        self.allocator.decide_by(policies, settings)
        self._servers = servers
        self._settings = settings
        self._due_s = now_s

    def change(self, topology: Topology, servers: Cluster, now_s: float) -> None:
        """Replace the cluster, and divide memory again at the next `update`.

        Args:
            topology: Servers, switches and links.
            servers: These servers as the scheduler sees them.
            now_s: The time.
        """
        self.allocator.change(topology)
        self._servers = servers
        self._due_s = now_s

    @property
    def next_s(self) -> float:
        """Time of the next division of memory, if jobs do not change before, in seconds; infinite: none."""
        return self._due_s if self.allocator.crossing else math.inf

    def divide_next(self, now_s: float) -> None:
        """Make the next `update` divide memory, as if the interval had passed."""
        self._due_s = min(self._due_s, now_s)

    def submit(self, job: Job) -> None:
        """Record the network properties of a job."""
        self._jobs[job.name] = job

    @property
    def topology(self) -> Topology:
        """The part of the cluster that is up; its link rates count payload only, without headers."""
        return self.allocator.topology

    def job(self, name: str) -> Job:
        """Return the network properties of a job: the measured values, or else the submitted ones."""
        return self._jobs[name]

    def placed(self, name: str) -> Job | None:
        """Return a job with its servers and its tree; None if the job has no servers."""
        return self.allocator.placed.get(name)

    def measure(
        self, name: str, compute_s: float | None, model_bytes: int | None, hold_s: float | None
    ) -> None:
        """Replace network properties of a job by measured values, for the next division of memory.

        Args:
            name: The job's name.
            compute_s: Computing time of an iteration, without overlap with sending, in seconds; None:
                unchanged.
            model_bytes: Size of the job's gradient, in bytes; None: unchanged.
            hold_s: Time for which a packet of the job holds a slot, in seconds; None: unchanged.
        """
        job = self._jobs[name]
        if compute_s is not None:
            job = replace(job, compute_s=compute_s, overlap=0.0, skew_s=0.0)
        if model_bytes is not None:
            job = replace(job, layers_bytes=(model_bytes,))
        if hold_s is not None:
            job = replace(job, hold_s=hold_s)
        self._jobs[name] = job
        self.allocator.measure(job)

    def newly_late(self) -> list[str]:
        """Return the jobs that were found to be late since the last call.

        A late job misses its deadline, but is not ended because of it.
        """
        found, self._reported_late = self.allocator.late.keys() - self._reported_late, {*self.allocator.late}
        return sorted(found)

    def forget(self, name: str) -> None:
        """Forget a job that is over. The next `update` frees the job's servers and slots."""
        self._jobs.pop(name, None)

    def has_servers(self, name: str) -> bool:
        """Return whether a running job has servers. A job without servers waits until servers have room."""
        return name in self._gpus_of

    def state(self, name: str) -> JobState:
        """Return the scheduling state of a job that has servers."""
        return self._states[name]

    def place(self, name: str) -> Place:
        """Return the servers, tree and slots of a job that has servers."""
        allocator = self.allocator
        job = allocator.placed[name]
        if not allocator.crosses(name):
            return Place(job.servers)
        division = allocator.division
        if division is None or name not in division.standing:
            return Place(job.servers, job.tree, job.fallback)
        standing, in_flight = division.standing[name], division.in_flight(name)
        return Place(job.servers, job.tree, job.fallback, division.regions[name], standing, in_flight)

    def check(self, decision: Decision) -> None:
        """Check a scheduler's decision, and record the servers that the decision gives to jobs.

        Raises BadDecision if the network or the placement setting does not allow the decision.
        """
        shared = next((group for group in decision.groups if group.neighbours), None)
        if shared is not None and not self.own_places:
            raise BadDecision(
                f"{shared.jobs[0]} shares only some of its GPUs, which placement"
                f" {self._settings.placement!r} does not support; placement 'scheduler' does"
            )
        from controller.vocabulary.files import check_job  # imported here: few decisions name places

        for job in decision.placed.values():
            try:
                check_job(job, self.topology)
            except BadSpec as error:
                raise BadDecision(str(error)) from error
        self._wished = decision.placed

    def update(
        self, now_s: float, groups: Sequence[Group], moved: Collection[JobState]
    ) -> tuple[list[JobState], list[JobState]]:
        """Place the jobs that have started; divide memory if jobs have changed or the interval has passed.

        Args:
            now_s: The time.
            groups: All running groups.
            moved: The jobs that have started, stopped or moved to another group since the last call.

        Returns:
            Two lists: the jobs to end, because they can no longer meet their deadlines; and the jobs that
            may have gained or lost servers, in order of arrival.
        """
        self.release(moved)
        changed, self._moved = self._moved, False
        self._lacking = {name: job for name, job in self._lacking.items() if job.group is not None}
        unsettled = {job for job in moved if job.group is not None}.union(self._lacking.values())
        self._lacking |= {job.spec.name: job for job in unsettled if job.spec.name not in self._gpus_of}
        changed |= self._place(now_s, self._without_servers(groups))
        for name in self._lacking.keys() & self._gpus_of.keys():
            del self._lacking[name]
        crossing = self.allocator.crossing
        ended: list[JobState] = []
        if changed or (crossing and now_s >= self._due_s):
            self.changes += 1
            left = {job.name: self._states[job.name].iterations_left(now_s) for job in crossing}
            ended = [self._states[name] for name in self.allocator.divide(now_s, left)]
            self._notify(now_s)
        if now_s >= self._due_s or self._due_s == math.inf:
            self._due_s = now_s + self._settings.period_s if self._settings.period_s else math.inf
        return ended, sorted(unsettled, key=lambda job: job.order)

    def _without_servers(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups with jobs that have no servers, in the order of `groups`."""
        found = {id(job.group): job.group for job in self._lacking.values() if job.group is not None}
        if len(found) > 1:
            return [group for group in groups if id(group) in found]
        return list(found.values())

    def set_outages(self, outages: Outages, now_s: float) -> dict[str, str]:
        """Set which servers, switches and links are down.

        Args:
            outages: The servers, switches and links that are down.
            now_s: The time.

        Returns:
            The reason, by job, for each job that has to be interrupted. The other jobs keep their trees, or
            get trees that avoid the failed parts.
        """
        lost = self.allocator.set_outages(outages.servers, outages.switches, outages.links)
        for name in self.allocator.rerouted:
            for watcher in self.watchers:
                watcher.on_placed(now_s, self.allocator.placed[name])
        self._moved = True
        return lost

    def withdraw(self, name: str) -> None:
        """Remove the servers, tree and slots of a job that lost its workers; `update` places it again."""
        if name not in self._gpus_of:
            return
        self._moved |= self.allocator.crosses(name)
        self._lacking[name] = self._states[name]
        self._drop(name)

    def release(self, moved: Iterable[JobState]) -> None:
        """Release the servers of the jobs in `moved` that no longer run on the GPUs that they had."""
        places = {job.spec.name: job.group.gpus for job in moved if job.group is not None}
        for name in {job.spec.name for job in moved} & self._gpus_of.keys():
            if places.get(name) != self._gpus_of[name]:
                self._moved |= self.allocator.crosses(name)
                self._drop(name)

    def _have(self, job: JobState, gpus: tuple[int, ...]) -> None:
        """Record that a job runs on the servers of its GPUs."""
        self._gpus_of[job.spec.name] = gpus
        self._states[job.spec.name] = job
        self._users[gpus] = self._users.get(gpus, 0) + 1

    def _drop(self, name: str) -> None:
        """Remove a job's servers, tree and slots.

        If the job was the last one on its set of GPU numbers, these numbers stand for no servers from now on.
        That is so even if the scheduler has already given the numbers to another group.
        """
        self.allocator.stop(name)
        del self._states[name]
        gpus = self._gpus_of.pop(name)
        self._users[gpus] -= 1
        if not self._users[gpus]:
            del self._users[gpus]
            self._places.pop(gpus, None)

    def _place(self, now_s: float, fresh: Sequence[Group]) -> bool:
        """Place the groups `fresh`, some of whose jobs have no servers, as far as servers have room.

        Returns True if one of these jobs now has servers and uses the network.
        """
        if not fresh:
            return False
        if self.own_places:
            self._put_where_gpus_are(fresh)
        else:
            self._ask_for_places(fresh)
        started = [job.spec.name for group in fresh for job in group.jobs if job.spec.name in self._gpus_of]
        for name in started:
            for watcher in self.watchers:
                watcher.on_placed(now_s, self.allocator.placed[name])
        return any(self.allocator.crosses(name) for name in started)

    def _put_where_gpus_are(self, groups: Iterable[Group]) -> None:
        for group in groups:
            names = [self._servers.servers[self._servers.node_of[gpu]].name for gpu in group.gpus]
            for job in group.jobs:
                if job.spec.name not in self._gpus_of and self.allocator.reaches(names):
                    self._put(job, group, names)

    def _ask_for_places(self, groups: Iterable[Group]) -> None:
        hosts = {group.gpus: group for group in groups if group.gpus not in self._places}
        batch = {group.jobs[0].spec.name: group for group in hosts.values()}
        for name in self.allocator.start([self._jobs[name] for name in batch]):
            gpus = batch[name].gpus
            placed = self.allocator.placed[name]
            self._places[gpus] = tuple(
                server for server in placed.servers for _ in range(placed.gpus_per_worker)
            )
            self._have(batch[name].jobs[0], gpus)
        for group in groups:
            if group.gpus in self._places:
                for job in group.jobs:
                    if job.spec.name not in self._gpus_of:
                        self._put(job, group, self._places[group.gpus])

    def _put(self, job: JobState, group: Group, names: Sequence[str]) -> None:
        """Place a job on the servers of its group's GPUs."""
        described = self._jobs[job.spec.name]
        servers = tuple(names[:: described.gpus_per_worker][: described.workers])
        wished = self._wished.get(job.spec.name)
        if wished is not None and wished.servers == servers:
            described = described.on(servers, wished.fallback, wished.tree)
        self.allocator.add(described, servers, guest=True)
        self._have(job, group.gpus)

    def _notify(self, now_s: float) -> None:
        problem, division = self.allocator.problem, self.allocator.division
        assert problem is not None
        assert division is not None
        for watcher in self.watchers:
            watcher.on_divided(now_s, problem, division)
