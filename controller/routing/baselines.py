"""Trees to compare with: sums in the racks only (ATP, NSDI'21), and along shortest paths.

O(jobs * switches).

>>> from controller.workload import TrainingJob, fabrics
>>> racks = fabrics.leaf_spine(2, 3, 2)
>>> job = TrainingJob(name="a", workers=3, layers_bytes=(1000,), servers=("h3", "h5", "h6"), fallback="h1")
>>> sorted(tor_only(Question(racks, (job,)))["a"].aggregators)
['leaf1', 'leaf3']
>>> sorted(shortest_path(Question(racks, (job,)))["a"].aggregators)
['leaf1', 'leaf3', 'spine1']
"""

from __future__ import annotations

from controller.routing.policy import Question
from controller.workload.model import Tree
from controller.workload.trees import racks_of


def tor_only(question: Question) -> dict[str, Tree]:
    """Sum at the switches that servers are linked to, where these can, and at the root."""
    return {
        job.name: question.grow(job, {rack: rack for rack in racks_of(question.cluster, job)})
        for job in question.routed
    }


def shortest_path(question: Question) -> dict[str, Tree]:
    """Sum at every switch that can on the shortest paths to the root."""
    return {job.name: question.summing_everywhere(job, question.grow(job, {})) for job in question.routed}
