"""The interface of placement policies, and the placement of a batch of jobs by one.

A policy is a function of a `Question` and a job; it returns the server of each worker, or None if there is
no room::

    def first_fit(question: Question, job: Job) -> list[str] | None:
        free = [name for name, room in question.room(job).items() for _ in range(room)]
        return free[: job.workers] if len(free) >= job.workers else None

A policy of your own is named ``path.py:first_fit``, or offered by a package as an entry point of `GROUP`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controller.errors import BadSpec
from controller.policies.placement.flows import State, steady_state
from controller.policies.placement.server import choose_fallback
from controller.policies.placement.switching import without_useless_sums
from controller.policies.placement.trees import tree_of
from controller.vocabulary import Job, Topology
from controller.vocabulary.errors import kind, plural

GROUP = "ina.placement"


@dataclass(frozen=True)
class Question:
    """A cluster with its running jobs; `rng` is the source of random choices."""

    topology: Topology
    running: tuple[Job, ...]
    rng: random.Random

    @cached_property
    def free(self) -> Mapping[str, int]:
        """Free GPUs of each server."""
        left = {server.name: server.gpus for server in self.topology.servers}
        for job in self.running:
            for server in job.servers:
                left[server] -= job.gpus_per_worker
        return left

    def beside(self, job: Job) -> Question:
        """Return the question after a job has been placed."""
        after = Question(self.topology, (*self.running, job), self.rng)
        left = dict(self.free)
        for server in job.servers:
            left[server] -= job.gpus_per_worker
        vars(after)["free"] = left  # what it would count again
        return after

    def room(self, job: Job) -> dict[str, int]:
        """Return how many workers of a job each server has GPUs for; servers without room are left out."""
        return {
            name: free // job.gpus_per_worker
            for name, free in self.free.items()
            if free >= job.gpus_per_worker
        }

    @cached_property
    def crossing(self) -> list[Job]:
        """The running jobs that have a tree, and so use the network."""
        return [job for job in self.running if job.tree is not None]

    @cached_property
    def values(self) -> dict[tuple[int, ...], float]:
        """Values of states of running jobs that were computed, by the jobs' places among `crossing`."""
        return {}

    @cached_property
    def state(self) -> State:
        """The steady state of the running jobs."""
        return steady_state(self.topology, self.running)

    @cached_property
    def busy(self) -> list[float]:
        """The load of the fuller direction of each link in the steady state, 0 to 1."""
        rates = np.array([link.capacity_bps for link in self.topology.links])
        busy: list[float] = (self.state.load_bps.reshape(-1, 2).max(axis=1) / rates).tolist()
        return busy


Choose = Callable[[Question, Job], Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class Policy:
    """A function that chooses servers, and whether batches and aggregation are NetPack's."""

    choose: Choose
    netpack: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A placed batch: the state of all running jobs, and the names of the jobs that wait."""

    state: State
    waiting: tuple[str, ...]


def place(
    topology: Topology,
    batch: Sequence[Job],
    policy: Policy,
    *,
    running: Sequence[Job] = (),
    seed: int = 0,
) -> Placed:
    """Place a batch of jobs beside the running ones.

    Jobs are placed one by one. NetPack's policy takes larger jobs first, and leaves out the jobs that fill
    the GPUs worst. Each job gets a fallback server near its root.

    Args:
        topology: Servers, switches and links.
        batch: The jobs to place.
        policy: Chooses the servers of each.
        running: Jobs that keep their servers.
        seed: Of the policy's random choices.

    Raises BadSpec for an impossible answer of the policy.
    """
    there, waiting = place_among(topology, batch, policy, running, random.Random(seed))
    return Placed(steady_state(topology, there), waiting)


def place_among(
    topology: Topology,
    batch: Sequence[Job],
    policy: Policy,
    running: Sequence[Job],
    rng: random.Random,
    free: Mapping[str, int] | None = None,
) -> tuple[list[Job], tuple[str, ...]]:
    """Place a batch of jobs beside the running ones; see `place`.

    Args:
        topology: Servers, switches and links.
        batch: The jobs to place.
        policy: Chooses the servers of each.
        running: Jobs that keep their servers.
        rng: The source of the policy's random choices.
        free: GPUs that the running jobs leave free, by server, if that is known; None: count them.

    Returns:
        All running jobs, earlier ones first, and the names of the jobs that wait.
    """
    question = Question(topology, tuple(running), rng)
    if free is not None:
        vars(question)["free"] = dict(free)  # what it would count again
    order = _fullest(batch, sum(question.free.values())) if policy.netpack else list(batch)
    names = {job.name for job in order}
    waiting = [job.name for job in batch if job.name not in names]
    for job in order:
        servers = policy.choose(question, job)
        if servers is None:
            waiting.append(job.name)
            continue
        _check(question, job, servers)
        question = question.beside(settle(question, job, servers))
    there = list(question.running)
    if policy.netpack and any(len(job.hosts) > 1 for job in there[len(running) :]):
        there = without_useless_sums(topology, there)
    return there, tuple(waiting)


def settle(question: Question, job: Job, servers: Sequence[str]) -> Job:
    """Return the job on these servers, with its tree and a fallback server."""
    placed = job.on(servers, job.fallback, None)
    if len(placed.hosts) == 1:
        return placed
    if job.mode == "shared":
        placed = job.on(servers, choose_fallback(question.state, placed), None)
    return job.on(servers, placed.fallback, tree_of(question.topology, placed))


def _check(question: Question, job: Job, servers: Sequence[str]) -> None:
    if not isinstance(servers, list | tuple) or not all(isinstance(name, str) for name in servers):
        raise BadSpec(
            f"the policy's answer for {job.name!r} is {kind(servers)}; it must be a list with the name of"
            " each worker's server, or None"
        )
    if len(servers) != job.workers:
        raise BadSpec(
            f"the policy places {plural(len(servers), 'worker')} of {job.name!r}, which has {job.workers}"
        )
    for name in set(servers):
        room = question.free.get(name, 0) // job.gpus_per_worker
        if servers.count(name) > room:
            placed = plural(servers.count(name), "worker")
            raise BadSpec(
                f"the policy places {placed} of {job.name!r} on {name!r}, which has room for {room}"
            )


def _fullest(batch: Sequence[Job], gpus: int) -> list[Job]:
    """Return the jobs that together leave fewest of `gpus` idle, larger ones first: a 0/1 knapsack.

    Of equally good choices it prefers earlier jobs. The possible sums of the jobs from each one on are the
    bits of a number: O(jobs * gpus / 64).
    """
    sizes = [job.gpus for job in batch]
    if sum(sizes) <= gpus:
        chosen = list(range(len(batch)))
    else:
        within = (1 << gpus + 1) - 1
        reachable = [1]
        for size in reversed(sizes):
            reachable.append(reachable[-1] | (reachable[-1] << size & within if size <= gpus else 0))
        reachable.reverse()
        chosen, left = [], reachable[0].bit_length() - 1
        for row, size in enumerate(sizes):
            if size <= left and reachable[row + 1] >> left - size & 1:
                chosen.append(row)
                left -= size
    return [batch[row] for row in sorted(chosen, key=lambda row: -sizes[row])]


def overfull(topology: Topology, running: Sequence[Job]) -> str | None:
    """Return the error of jobs that share a server with too few GPUs for them, or None."""
    free = Question(topology, tuple(running), random.Random(0)).free
    short = next((name for name, left in free.items() if left < 0), None)
    if short is None:
        return None
    there = ", ".join(job.name for job in running if short in job.servers)
    return (
        f"servers: {there} need {-free[short]} GPUs more of {short!r} than its {topology.server[short].gpus}"
    )
