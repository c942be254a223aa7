"""A cluster on which jobs wait in one queue for hosts, and sum in switches or by the hosts.

As in MINA's public simulator: the first job of the queue gets hosts when enough are free; links are never
full; a sum in the network needs all switches of its job's tree to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.replicas.mina.fabric import Draws, Fabric, Tree
from benchmarks.replicas.mina.hosts import Choose
from benchmarks.replicas.mina.steps import MIXES, Job, Kinds, Steps, Turns, sizes_of
from benchmarks.replicas.mina.trees import Build, Running, Score, Sharing


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job in the queue: the number of its model, and its numbers of hosts and steps."""

    model: int
    hosts: int
    steps: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended: its time, and its times with all or no sums in switches."""

    request: JobRequest
    number: int
    took_s: float
    best_s: float
    worst_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """All jobs, in the order in which they ended."""

    jobs: Sequence[Ended]

    def score(self, *, weighted: bool = True) -> Score:
        """Return the times of all jobs, weighted by hosts or not."""
        weights = ((job, job.request.hosts if weighted else 1) for job in self.jobs)
        scores = (Score(by * job.took_s, by * job.best_s, by * job.worst_s) for job, by in weights)
        return sum(scores, Score(0.0, 0.0, 0.0))


def queue(
    mix: str, models: int, *, jobs: int = 1000, seed: int = 42, most_hosts: int = 128
) -> list[JobRequest]:
    """Return the jobs of a mix, as the public simulator draws them: all are there from the start.

    Args:
        mix: One of `MIXES`.
        models: Number of models.
        jobs: Number of jobs.
        seed: Seed of the draws.
        most_hosts: Jobs with more are drawn with this many.
    """
    draws, sizes, weights = Draws(seed), sizes_of(mix), MIXES[mix]
    requests = []
    for _ in range(jobs):
        model, size = draws.below(models), sizes[draws.weighted(weights)]
        requests.append(JobRequest(model, min(size, most_hosts), 10 + 10 * draws.below(10)))
    return requests


@dataclass
class Tries:
    """Scores of jobs that take turns at one switch, by simulation, each group once.

    Attributes:
        kinds: The kinds of jobs.
        turns: Decides the turns.
        steps: Number of simulated steps of the slowest job.
        known: Scores of groups that were simulated.
    """

    kinds: Kinds
    turns: Turns = Turns.GAIN
    steps: int = 3
    known: dict[Sharing, Score] = field(default_factory=dict)

    def __call__(self, sharing: Sharing) -> Score:
        """Return the score of jobs of these kinds, as numbers of hosts and of models."""
        if sharing not in self.known:
            self.known[sharing] = self._tried(sharing)
        return self.known[sharing]

    def _tried(self, sharing: Sharing) -> Score:
        steps = Steps(self.kinds.profiles, 1, self.turns)
        for hosts, model in sharing:
            job = steps.start(self.kinds.profile(model, hosts), hosts)
            job.group = 0
            steps.set_tree(job, (0,) if hosts > 1 else ())
        longest_s = max(self.kinds.step_s(model, hosts, in_network=False) for hosts, model in sharing)
        steps.run(end_s=self.steps * longest_s)
        score = Score(0.0, 0.0, 0.0)
        for (hosts, model), job in zip(sharing, steps.jobs, strict=True):
            best, worst = (
                self.kinds.step_s(model, hosts, in_network=fast) * job.step * hosts for fast in (True, False)
            )
            # whole steps, whose rounding must not look like a gain where there is none
            took = (job.step_start_s - job.start_s) * hosts if best != worst else worst
            score += Score(took, best, worst)
        return score


class Cluster:
    """A cluster with its policies.

    Args:
        fabric: Hosts and switches.
        kinds: The kinds of jobs.
        choose: Chooses hosts.
        build: Chooses trees.
        turns: Decides which sums get the switches.
    """

    def __init__(
        self,
        fabric: Fabric,
        kinds: Kinds,
        choose: Choose,
        build: Build,
        turns: Turns,
    ) -> None:
        self._fabric, self._kinds, self._choose, self._build = fabric, kinds, choose, build
        self._steps = Steps(kinds.profiles, fabric.switches, turns)
        self._free = [True] * fabric.hosts
        self._running: dict[int, tuple[Running, JobRequest, Job]] = {}
        self._trees: dict[int, Tree | None] = {}

    def run(self, requests: Sequence[JobRequest]) -> Outcome:
        """Run the queue until its last job has ended. Raises ValueError if a job is too large."""
        if any(job.hosts > self._fabric.hosts for job in requests):
            raise ValueError(f"a job has more than the {self._fabric.hosts} hosts of the fabric")
        waiting = list(reversed(list(enumerate(requests))))
        ended: list[Ended] = []
        self._start(waiting)
        while self._running:
            job = self._steps.run()
            number = next(number for number, each in self._running.items() if each[2] is job)
            ended.append(self._end(number))
            self._start(waiting)
        return Outcome(ended)

    def _start(self, waiting: list[tuple[int, JobRequest]]) -> None:
        while waiting:
            number, job = waiting[-1]
            hosts = self._choose(self._fabric, self._free, job.hosts)
            if hosts is None:
                break
            waiting.pop()
            for host in hosts:
                self._free[host] = False
            profile = self._kinds.profile(job.model, job.hosts)
            started = self._steps.start(profile, job.hosts, steps=job.steps)
            running = Running(number, (job.hosts, job.model), tuple(hosts))
            self._running[number] = running, job, started
        self._assign_trees()

    def _assign_trees(self) -> None:
        trees = self._build([running for running, _, _ in self._running.values()])
        for number, (_, _, job) in self._running.items():
            tree = trees.get(number)
            if number not in self._trees or tree != self._trees[number]:
                self._trees[number] = tree
                self._steps.set_tree(job, tree.switches if tree else None)
        place = {number: at for at, number in enumerate(self._running)}
        groups = [
            sorted(group, key=place.__getitem__)
            for group in components({number: self._trees[number] for number in self._running})
        ]
        # the public simulator's order of events at the same time, where its standard library is libc++
        groups.sort(key=lambda group: -place[group[0]])
        rank = 0
        for group, numbers in enumerate(groups):
            for number in numbers:
                job = self._running[number][2]
                job.rank, rank = rank, rank + 1
                job.group = group if len(numbers) > 1 else -1

    def _end(self, number: int) -> Ended:
        running, request, job = self._running.pop(number)
        self._trees.pop(number)
        for host in running.hosts:
            self._free[host] = True
        best_s, worst_s = (
            request.steps * self._kinds.step_s(request.model, request.hosts, in_network=fast)
            for fast in (True, False)
        )
        return Ended(request, number, job.finish_s - job.start_s, best_s, worst_s)


def components(trees: dict[int, Tree | None]) -> list[list[int]]:
    """Return the jobs that have conflicts with each other, directly or through others; each job once.

    >>> components({1: Tree((0, 1), 0b11), 2: Tree((1, 2), 0b110), 3: Tree((2,), 0b100), 4: None})
    [[4], [1, 2, 3]]
    """
    groups: list[tuple[int, list[int]]] = [(0, [number]) for number, tree in trees.items() if tree is None]
    for number, tree in trees.items():
        if tree is None:
            continue
        met = [group for group in groups if group[0] & tree.bits]
        groups = [group for group in groups if not group[0] & tree.bits]
        union, numbers = tree.bits, [each for _, group in met for each in group]
        for used, _ in met:
            union |= used
        groups.append((union, [*numbers, number]))
    return [numbers for _, numbers in groups]
