"""Trees to compare with: sums in the racks only (ATP, NSDI'21), on one path or many, and on shortest paths.

O(jobs * switches); `ecmp` is O(jobs * racks * links of a switch * depth).

>>> from controller.vocabulary import Job, fabrics
>>> racks = fabrics.leaf_spine(2, 3, 2)
>>> job = Job(name="a", workers=3, layers_bytes=(1000,), servers=("h3", "h5", "h6"), fallback="h1")
>>> sorted(tor_only(Question(racks, (job,)))["a"].aggregators)
['leaf1', 'leaf3']
>>> sorted(shortest_path(Question(racks, (job,)))["a"].aggregators)
['leaf1', 'leaf3', 'spine1']
"""

from __future__ import annotations

from controller.policies.placement.trees import racks_of
from controller.policies.routing.policy import Question
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
