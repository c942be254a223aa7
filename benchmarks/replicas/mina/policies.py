"""MINA's placement and trees behind the product's interfaces.

Its turns are not here: it decides on each sum as a whole, while switches of this project share their slots
among the packets of all jobs, and the controller decides only when jobs come and go.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.replicas.mina.hosts import FewestFragments
from benchmarks.replicas.mina.trees import MOST_TREES, independent
from controller.placement.policy import Question as PlacementQuestion
from controller.routing.policy import Question
from controller.vocabulary import Job, Tree


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


def independent_trees(question: Question) -> Mapping[str, Tree]:
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
