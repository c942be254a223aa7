"""Trees to compare with: sums in the racks only (ATP, NSDI'21), on one path or many, and on shortest paths.

O(jobs * switches); `ecmp` is O(jobs * racks * links of a switch * depth).

>>> from controller.vocabulary import Job, fabrics
>>> racks = fabrics.leaf_spine(2, 3, 2)
>>> job = Job(name="a", workers=3, layers_bytes=(1000,), servers=("h3", "h5", "h6"), fallback="h1")
>>> sorted(tor_only(Question(racks, (job,)))["a"].aggregators)
['leaf1', 'leaf3']
>>> sorted(shortest_path(Question(racks, (job,)))["a"].aggregators)
['leaf1', 'leaf3', 'spine1']

The best trees by exhaustive search, over all shortest paths: an oracle for small cases.

Complexity: O(product over racks of the ways over the switches that could sum them); refuses more than `MOST`.

>>> from controller.vocabulary import Job, fabrics
>>> job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h2"))
>>> exact(Question(fabrics.star(2), (job,)))["a"].root
's1'
"""

from __future__ import annotations

import itertools
import math

from controller.errors import BadSpec
from controller.policies.placement.trees import racks_of
from controller.policies.routing.grid import candidates
from controller.policies.routing.policy import Question, score
from controller.vocabulary import Tree


def tor_only(question: Question) -> dict[str, Tree]:
    """Sum at the root and at the switches that servers are linked to, where these can sum."""
    return {
        job.name: question.grow(job, {rack: rack for rack in racks_of(question.topology, job)})
        for job in question.routed
    }


def ecmp(question: Question) -> dict[str, Tree]:
    """Sum as `tor_only`, each job over random shortest paths of its own, as equal-cost multi-path does."""
    return {
        job.name: question.grow(job, {rack: rack for rack in racks_of(question.topology, job)}, spread=True)
        for job in question.routed
    }


def ecmp_everywhere(question: Question) -> dict[str, Tree]:
    """Sum at every switch that can, each job over random shortest paths of its own."""
    return {
        job.name: question.summing_everywhere(job, question.grow(job, {}, spread=True))
        for job in question.routed
    }


def shortest_path(question: Question) -> dict[str, Tree]:
    """Sum at every switch of the shortest paths to the root that can."""
    return {job.name: question.summing_everywhere(job, question.grow(job, {})) for job in question.routed}


MOST = 5_000


def exact(question: Question) -> dict[str, Tree]:
    """Return the trees whose lowest rate is highest. Raises BadSpec if there are too many to try."""
    racks = [(job, rack) for job in question.routed for rack in racks_of(question.topology, job)]
    choices = [
        [
            (pick, way)
            for pick in candidates(question, job, rack)
            for way in question.ways(rack, pick, question.roots[job.name])
        ]
        for job, rack in racks
    ]
    count = math.prod(len(each) for each in choices)
    if count > MOST:
        raise BadSpec(f"{count} ways to pick switches and paths; --policy exact tries {MOST} at most")
    best: tuple[tuple[float, float], dict[str, Tree]] | None = None
    for chosen in itertools.product(*choices):
        ways: dict[str, dict[str, list[str]]] = {job.name: {} for job in question.routed}
        picked: dict[str, list[str]] = {job.name: [] for job in question.routed}
        for (job, rack), (pick, way) in zip(racks, chosen, strict=True):
            ways[job.name][rack] = way
            picked[job.name].append(pick)
        trees = {job.name: question.merged(job, ways[job.name], picked[job.name]) for job in question.routed}
        wider = {job.name: question.summing_everywhere(job, trees[job.name]) for job in question.routed}
        for candidate in (trees, wider):
            worth = score(question.evaluate(candidate))
            if best is None or worth > best[0]:
                best = (worth, candidate)
    return {} if best is None else best[1]
