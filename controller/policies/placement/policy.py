"""The interface of placement policies, the placement of a batch of jobs, and explanations of placements.

A policy is a function of a `PlacementProblem` and a job. It returns the server of each worker, or None if
there is no room::

    def first_fit(problem: PlacementProblem, job: Job) -> list[str] | None:
        free = [name for name, room in problem.room(job).items() for _ in range(room)]
        return free[: job.workers] if len(free) >= job.workers else None

A policy of your own is named ``path.py:first_fit``, or a package's entry point of group ``ina.placement``.

`choose_fallback` chooses a job's fallback server: near the job's servers, on the link with most bandwidth
left.

`without_useless_sums` chooses the jobs that switches sum if memory is short (NetPack's last step). The
efficiency of a job is the number of flows that its sums save, divided by the number of switches that sum it.
Complexity: O(tries · events).

>>> from controller.vocabulary import fabrics
>>> job = Job(name="a", workers=3, layers_bytes=(1000,), servers=("h1", "h2", "h3"))
>>> efficiency(fabrics.star(4), job)
2.0

Explanations of a placed job's rate, in words and numbers.
"""

from __future__ import annotations

import math
import random
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from controller.errors import BadSpec
from controller.policies.placement.flows import (
    NONE,
    FlowState,
    directions,
    fan_in,
    racks_of,
    speed,
    steady_state,
    tree_of,
    ways_to,
)
from controller.vocabulary import Job, Topology
from controller.vocabulary.errors import kind, plural


@dataclass(frozen=True)
class PlacementProblem:
    """A cluster and its running jobs, beside which a policy places a job; `rng` is for random choices."""

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

    def with_job(self, job: Job) -> PlacementProblem:
        """Return a new problem, in which the placed `job` is running and its GPUs are not free."""
        after = PlacementProblem(self.topology, (*self.running, job), self.rng)
        left = dict(self.free)
        for server in job.servers:
            left[server] -= job.gpus_per_worker
        vars(after)["free"] = left  # or it would be counted again
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
        """Cache of `FlowState.value` for sets of running jobs, by the jobs' positions in `crossing`."""
        return {}

    @cached_property
    def state(self) -> FlowState:
        """The rates of the running jobs' gradients in the steady state."""
        return steady_state(self.topology, self.running)

    @cached_property
    def busy(self) -> list[float]:
        """The load of the fuller direction of each link in the steady state, 0 to 1."""
        rates = np.array([link.capacity_bps for link in self.topology.links])
        busy: list[float] = (self.state.load_bps.reshape(-1, 2).max(axis=1) / rates).tolist()
        return busy


Choose = Callable[[PlacementProblem, Job], Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """A function that chooses a job's servers.

    `netpack`: whether NetPack's rules also choose the jobs of a batch, and the jobs that switches sum.
    """

    choose: Choose
    netpack: bool = False


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """A placed batch: the state of all running jobs, and the names of the jobs that wait."""

    state: FlowState
    waiting: tuple[str, ...]


def place(
    topology: Topology,
    batch: Sequence[Job],
    policy: PlacementPolicy,
    *,
    running: Sequence[Job] = (),
    seed: int = 0,
) -> PlacementResult:
    """Place a batch of jobs beside the running ones.

    Jobs are placed one by one. NetPack's policy places larger jobs first; if GPUs are too few, it selects the
    jobs that leave fewest GPUs idle. Each job gets a fallback server near its root.

    Args:
        topology: Servers, switches and links.
        batch: The jobs to place.
        policy: Policy that chooses each job's servers.
        running: Jobs that keep their servers.
        seed: Seed of the policy's random choices.

    Raises BadSpec for an impossible result of the policy.
    """
    jobs, waiting = place_among(topology, batch, policy, running, random.Random(seed))
    return PlacementResult(steady_state(topology, jobs), waiting)


def place_among(
    topology: Topology,
    batch: Sequence[Job],
    policy: PlacementPolicy,
    running: Sequence[Job],
    rng: random.Random,
    free: Mapping[str, int] | None = None,
) -> tuple[list[Job], tuple[str, ...]]:
    """Place a batch of jobs beside the running ones; see `place`.

    Args:
        topology: Servers, switches and links.
        batch: The jobs to place.
        policy: Policy that chooses each job's servers.
        running: Jobs that keep their servers.
        rng: The source of the policy's random choices.
        free: GPUs that the running jobs leave free, by server; None: count them.

    Returns:
        All running jobs, earlier ones first, and the names of the jobs that wait.
    """
    problem = PlacementProblem(topology, tuple(running), rng)
    if free is not None:
        vars(problem)["free"] = dict(free)  # or it would be counted again
    order = _fullest(batch, sum(problem.free.values())) if policy.netpack else list(batch)
    names = {job.name for job in order}
    waiting = [job.name for job in batch if job.name not in names]
    for job in order:
        servers = policy.choose(problem, job)
        if servers is None:
            waiting.append(job.name)
            continue
        _check(problem, job, servers)
        problem = problem.with_job(settle(problem, job, servers))
    jobs = list(problem.running)
    if policy.netpack and any(len(job.hosts) > 1 for job in jobs[len(running) :]):
        jobs = without_useless_sums(topology, jobs)
    return jobs, tuple(waiting)


def settle(problem: PlacementProblem, job: Job, servers: Sequence[str]) -> Job:
    """Return the job on these servers, with a tree of shortest paths and, in shared mode, a fallback server.

    A job on one server gets no tree and no fallback server.
    """
    placed = job.on(servers, job.fallback, None)
    if len(placed.hosts) == 1:
        return placed
    if job.mode == "shared":
        placed = job.on(servers, choose_fallback(problem.state, placed), None)
    return job.on(servers, placed.fallback, tree_of(problem.topology, placed))


def _check(problem: PlacementProblem, job: Job, servers: Sequence[str]) -> None:
    wrong = "" if isinstance(servers, list | tuple) else f"is {kind(servers)}"
    if not wrong and (others := [each for each in servers if not isinstance(each, str)]):
        wrong = f"has {reprlib.repr(others[0])}, {kind(others[0])}"
    if wrong:
        raise BadSpec(
            f"the policy's result for {job.name!r} {wrong}; it must be a list with the name of each worker's"
            " server, or None"
        )
    if len(servers) != job.workers:
        raise BadSpec(
            f"the policy places {plural(len(servers), 'worker')} of {job.name!r}, which has {job.workers}"
        )
    for name in set(servers):
        room = problem.free.get(name, 0) // job.gpus_per_worker
        if servers.count(name) > room:
            placed = plural(servers.count(name), "worker")
            raise BadSpec(
                f"the policy places {placed} of {job.name!r} on {name!r}, which has room for {room}"
            )


def _fullest(batch: Sequence[Job], gpus: int) -> list[Job]:
    """Return the jobs of `batch` that together leave the fewest of `gpus` GPUs idle: a 0/1 knapsack.

    Larger jobs come first. Of equally good choices, the one with earlier jobs is preferred. For each job, the
    bits of an integer are the possible sums of this job and later ones: O(jobs * gpus / 64).
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
    """Return an error message if a server has too few GPUs for the jobs on it, or None."""
    free = PlacementProblem(topology, tuple(running), random.Random(0)).free
    short = next((name for name, left in free.items() if left < 0), None)
    if short is None:
        return None
    names = ", ".join(job.name for job in running if short in job.servers)
    return (
        f"servers: {names} need {-free[short]} more GPUs of server {short!r},"
        f" which has {topology.server[short].gpus}"
    )


def choose_fallback(state: FlowState, job: Job) -> str | None:
    """Return the fallback server of a placed job; None if there is no candidate.

    If some servers have a `fallback_port`, only these are candidates. If no server has one, all servers are
    candidates, except the job's own servers. A server with a `fallback_port` that also runs the job's workers
    is chosen only if there is no other candidate. The fallback server's switch becomes the tree's root. So
    racks whose switch sums are preferred, and among these racks the one nearest to the job's servers. Of
    several candidates in a rack, the one whose link has most bandwidth left in the steady state is chosen
    (NetPack's parameter server). O(racks² + servers of the nearest rack).
    """
    topology = state.topology
    ways = ways_to(topology, racks_of(topology, job))
    order = topology.number_of
    own, serving = set(job.hosts), topology.serving

    def distance(rack: str) -> tuple[bool, int, int]:
        return (not topology.switch[rack].aggregates, int(ways[order[rack]]), order[rack])

    racks = sorted(topology.racks, key=distance)
    for rack in racks:
        if choices := [server for server in topology.racks[rack] if server in serving and server not in own]:
            return _least_loaded(state, rack, choices)
    for rack in racks if len(own) > 1 else ():
        candidates = (topology.server[server] for server in topology.racks[rack] if server in own)
        if choices := [server.name for server in candidates if server.serves_beside_workers]:
            return _least_loaded(state, rack, choices)
    return None


def _least_loaded(state: FlowState, rack: str, servers: Sequence[str]) -> str:
    """Return the server at switch `rack` whose link has most bandwidth left; of equal ones, the first."""
    links = [directions(state.topology, rack, server)[0] for server in servers]
    load = state.load_bps
    left = np.array([state.topology.links[link // 2].capacity_bps - load[link] for link in links])
    return servers[int(left.argmax())]


TRIES = 16


def efficiency(topology: Topology, job: Job) -> float:
    """Return the number of flows that the job's sums save, divided by the number of switches that sum."""
    tree = tree_of(topology, job)
    fan_ins = fan_in(topology, job, tree)
    saved = sum(fan_ins[name] - 1 for name in tree.aggregators)
    return saved / len(tree.aggregators) if tree.aggregators else 0.0


def without_useless_sums(topology: Topology, jobs: Sequence[Job]) -> list[Job]:
    """Switch off aggregation for jobs whose memory is of more use to other jobs; return all jobs.

    Tries at most `TRIES` jobs at switches whose memory is full, least efficient first. A job's aggregation
    stays off if more GPUs of the cluster then compute. Each try is one water-filling.
    """
    best = list(jobs)
    state = steady_state(topology, best)
    full = {
        switch.name
        for switch, level in zip(topology.switches, state.steady.spilled_at_bps, strict=True)
        if level < float("inf") and switch.aggregates
    }
    touched = [
        number
        for number, job in enumerate(best)
        if job.aggregate and len(job.hosts) > 1 and tree_of(topology, job).aggregators & full
    ]
    for number in sorted(touched, key=lambda number: efficiency(topology, best[number]))[:TRIES]:
        trial = [*best[:number], replace(best[number], aggregate=False), *best[number + 1 :]]
        after = steady_state(topology, trial)
        if after.value > state.value * (1 + 1e-9):
            best, state = trial, after
    return best


def explain(state: FlowState, job: Job) -> list[str]:
    """Return sentences about a job: its servers, its rate, the limit of the rate, and how to raise it."""
    count = len(job.hosts)
    racks = dict.fromkeys(state.topology.rack_of[host] for host in job.hosts)
    lines = [
        f"{plural(job.workers, 'worker')} on {plural(count, 'server')} in {plural(len(racks), 'rack')}:"
        f" {', '.join(job.hosts[:12])}"
        + (" …" if count > 12 else "")
        + (f"; packets without a slot are summed on {job.fallback}." if job.fallback else ".")
    ]
    rate_bps = state.rate_bps(job)
    if count == 1:
        return [*lines, "The job stays on one server: it sends no gradients, and no link limits its rate."]
    tree = tree_of(state.topology, job)
    fan_ins = fan_in(state.topology, job, tree)
    sums = ", ".join(f"{name} ({plural(fan_ins[name], 'flow')})" for name in sorted(tree.aggregators))
    lines.append(
        f"Its gradients are summed at {sums}; the tree's root is {tree.root}."
        if job.aggregate and sums
        else "No switch sums the job."
    )
    part = speed(job, rate_bps)
    if not math.isfinite(rate_bps):
        return [*lines, f"Nothing limits its rate; its GPUs compute {part:.1%} of the time."]
    lines.append(
        f"Its gradients are summed at {rate_bps / 1e9:.4g} Gb/s: an iteration takes"
        f" {job.iteration_at_s(rate_bps) * 1e3:.4g} ms, and its GPUs compute {part:.1%} of the time."
    )
    return [*lines, *_bound(state, job, rate_bps)]


def _bound(state: FlowState, job: Job, rate_bps: float) -> list[str]:
    """Return sentences that name the link that limits a job, and other jobs on this link.

    They also say how much the job would gain if the link had 10 % more capacity.
    """
    number = int(state.steady.bound_by[state.jobs.index(job)])
    if number == NONE:
        return []
    others = [other.name for other in state.jobs if other is not job and number in _links(state, other)]
    shared = f", with {', '.join(others[:8])}" if others else ", alone"
    lines = [f"{state.resource(number).capitalize()} limits the job{shared}."]
    for name in sorted(tree_of(state.topology, job).aggregators if job.aggregate else ()):
        level = float(state.steady.spilled_at_bps[state.topology.number_of[name]])
        if level < rate_bps:
            lines.append(
                f"Above {level / 1e9:.4g} Gb/s per job, {name} has no free slots: the excess passes unsummed."
            )
    better = steady_state(_faster(state.topology, number // 2), state.jobs).rate_bps(job)
    gain_s = (job.iteration_at_s(rate_bps) - job.iteration_at_s(better)) * job.iterations
    lines.append(
        f"10 % more capacity of this link would bring {(better - rate_bps) / 1e9:+.3g} Gb/s, and end the job"
        f" {gain_s:.4g} s earlier."
    )
    return lines


def _links(state: FlowState, job: Job) -> set[int]:
    if len(job.hosts) < 2:
        return set()
    tree = tree_of(state.topology, job)
    pairs = [(host, state.topology.rack_of[host]) for host in job.hosts] + list(tree.parents.items())
    if job.fallback and state.topology.rack_of[job.fallback] == tree.root:
        pairs.append((tree.root, job.fallback))
    return {end for pair in pairs for end in directions(state.topology, *pair)}


def _faster(topology: Topology, number: int) -> Topology:
    """Return the cluster with a 10 % higher rate of the link at position `number` of its links."""
    links = list(topology.links)
    links[number] = links[number].faster(1.1)
    return replace(topology, links=tuple(links))
