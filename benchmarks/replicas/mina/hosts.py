"""Which hosts a job gets: the first free ones, or those that leave few fragments (MINA).

A policy is a function of the fabric, of whether each host is free, and of a number of hosts; it returns that
many free hosts, or None if there are too few.

MINA's placement and trees behind the product's interfaces.

Its turns are not here: it decides on each sum as a whole, while switches of this project share their slots
among the packets of all jobs, and the controller decides only when jobs come and go.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.replicas.mina.fabric import Fabric
from benchmarks.replicas.mina.trees import MOST_TREES, independent
from controller.policies.placement.baselines import locality_first
from controller.policies.placement.policy import Question as PlacementQuestion
from controller.policies.routing.policy import Question as RoutingQuestion
from controller.vocabulary import Job, Topology, Tree, fabrics


def fewest_fragments(question: PlacementQuestion, job: Job) -> list[str] | None:
    """Place a job in fewest fragments of servers and racks, where also few fragments stay free.

    MINA's jobs have whole hosts; ours, where they fit, one server, the fullest.
    """
    room, racks = question.room(job), question.topology.rack_of
    if fitting := [name for name, count in room.items() if count >= job.workers]:
        return [min(fitting, key=room.__getitem__)] * job.workers
    if sum(room.values()) < job.workers:
        return None
    policy = FewestFragments()
    servers: dict[str, list[str]] = {}
    for server in question.topology.servers:
        servers.setdefault(racks[server.name], []).append(server.name)
    sizes = {server.name: server.gpus // job.gpus_per_worker for server in question.topology.servers}
    taken = [
        policy.merged(
            [policy.leaf([name] * room.get(name, 0), sizes[name], job.workers) for name in names],
            sum(sizes[name] for name in names),
            job.workers,
        )
        for names in servers.values()
    ]
    return [str(name) for name in policy.merged(taken, sum(sizes.values()), job.workers).chosen(job.workers)]


def independent_trees(question: RoutingQuestion) -> Mapping[str, Tree]:
    """Give as many jobs as can be trees without a summing switch in common; the others share with fewest."""
    trees = [
        (job.name, question.summing_everywhere(job, question.grow(job, {}, spread=True)))
        for job in question.routed
        for _ in range(MOST_TREES)
    ]
    near = [0] * len(trees)
    for at, (name, tree) in enumerate(trees):
        for other, (of, beside) in enumerate(trees[:at]):
            if name == of or tree.aggregators & beside.aggregators:
                near[at] |= 1 << other
                near[other] |= 1 << at
    chosen = {trees[at][0]: at for at in independent(near)}
    for at, (name, _) in sorted(enumerate(trees), key=lambda each: near[each[0]].bit_count()):
        chosen.setdefault(name, at)
    return {name: trees[at][1] for name, at in chosen.items()}


ALPHA: Final = 0.5
"""Weight of a fragment that stays free; one that the job gets counts 1."""

Choose = Callable[[Fabric, Sequence[bool], int], list[int] | None]
Scores = npt.NDArray[np.float64]
Place = int | str


def locality(fabric: Fabric, free: Sequence[bool], count: int) -> list[int] | None:
    """Take the hosts that our own placement by locality takes: of one rack, or of few."""
    servers = [f"h{host + 1}" for host in range(fabric.hosts)]
    topology = _topology(fabric)
    question = PlacementQuestion(topology, (), random.Random(0))
    vars(question)["free"] = {name: int(idle) for name, idle in zip(servers, free, strict=True)}
    job = Job(name="job", workers=count, layers_bytes=(1,))
    chosen = locality_first(question, job)
    return None if chosen is None else [int(name[1:]) - 1 for name in chosen]


@cache
def _topology(fabric: Fabric) -> Topology:
    """Return a topology with the racks of a fabric, by which locality goes."""
    return fabrics.leaf_spine(1, fabric.racks, fabric.hosts_in_rack, fabrics.Parts(gpus=1))


def first_fit(_fabric: Fabric, free: Sequence[bool], count: int) -> list[int] | None:
    """Take the free hosts of the lowest numbers."""
    chosen = [host for host, idle in enumerate(free) if idle][:count]
    return chosen if len(chosen) == count else None


@dataclass(slots=True)
class Taken:
    """What it costs to take each number of places from a part of a cluster, and how to take them."""

    score: Scores
    idle: int
    splits: Sequence[npt.NDArray[np.intp]] = ()
    """How many of them come from each part, by number."""
    parts: Sequence[Taken] = ()
    places: Sequence[Place] = ()

    def chosen(self, count: int) -> list[Place]:
        """Return the places of the best choice of this many."""
        if not self.parts:
            return list(self.places[:count])
        taken: list[list[Place]] = []
        for part, split in zip(reversed(self.parts), reversed(self.splits), strict=True):
            here = int(split[count])
            taken.append(part.chosen(here))
            count -= here
        return [place for places in reversed(taken) for place in places]


@dataclass(frozen=True, slots=True)
class FewestFragments:
    """MINA's: the hosts in fewest fragments, where also few fragments stay free.

    A fragment is a host, rack or pod that is whole, and whose surroundings are not: a rack that a job has
    whole is one fragment, half a rack is as many as it has hosts. Of equally good choices it takes as few
    hosts as can be from later racks. A dynamic program over hosts, racks and pods: O(hosts * count).

    Attributes:
        alpha: Weight of a fragment that stays free.
    """

    alpha: float = ALPHA

    def __call__(self, fabric: Fabric, free: Sequence[bool], count: int) -> list[int] | None:
        """Return the hosts, or None if too few are free."""
        if sum(free) < count:
            return None
        size = fabric.hosts_in_rack
        racks = [
            self.leaf([host for host in range(at, at + size) if free[host]], size, count)
            for at in range(0, fabric.hosts, size)
        ]
        each = fabric.racks_in_pod
        pods = [self.merged(racks[at : at + each], each * size, count) for at in range(0, fabric.racks, each)]
        return [int(host) for host in self.merged(pods, fabric.hosts, count).chosen(count)]

    def leaf(self, idle: Sequence[Place], size: int, count: int) -> Taken:
        """Return the costs of taking up to `count` of the idle places of a part that has `size` places."""
        here = np.arange(min(len(idle), count) + 1)
        score = here + self.alpha * (len(idle) - here)
        return self._whole(Taken(score, len(idle), places=tuple(idle)), size)

    def merged(self, parts: Sequence[Taken], size: int, count: int) -> Taken:
        """Return the costs of taking up to `count` places of parts that together have `size`."""
        score, splits = np.zeros(1), []
        for part in parts:
            most = min(len(score) + len(part.score) - 2, count)
            sums = np.full((len(part.score), most + 1), np.inf)
            for here, cost in enumerate(part.score):
                upto = min(most + 1, here + len(score))
                sums[here, here:upto] = cost + score[: upto - here]
            splits.append(sums.argmin(axis=0))
            score = sums.min(axis=0)
        return self._whole(Taken(score, sum(part.idle for part in parts), splits, parts), size)

    def _whole(self, taken: Taken, size: int) -> Taken:
        if taken.idle == size:
            taken.score[0] = self.alpha
            if size < len(taken.score):
                taken.score[size] = 1.0
        return taken
