"""The best trees by exhaustive search: an oracle for small cases.

Complexity: O(product over racks of the switches that could sum them); refuses more than `MOST`.

>>> from controller.vocabulary import Job, fabrics
>>> job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h2"))
>>> exact(Question(fabrics.star(2), (job,)))["a"].root
's1'
"""

from __future__ import annotations

import itertools
import math

from controller.errors import BadSpec
from controller.placement.trees import racks_of
from controller.routing.grid import candidates
from controller.routing.policy import Question, score
from controller.vocabulary import Tree

MOST = 5_000


def exact(question: Question) -> dict[str, Tree]:
    """Return the trees whose lowest rate is highest. Raises BadSpec if there are too many to try."""
    racks = [(job, rack) for job in question.routed for rack in racks_of(question.topology, job)]
    choices = [candidates(question, job, rack) for job, rack in racks]
    count = math.prod(len(each) for each in choices)
    if count > MOST:
        raise BadSpec(f"{count} ways to pick switches; --policy exact tries {MOST} at most")
    best: tuple[tuple[float, float], dict[str, Tree]] | None = None
    for picks in itertools.product(*choices):
        of_job: dict[str, dict[str, str]] = {}
        for (job, rack), pick in zip(racks, picks, strict=True):
            of_job.setdefault(job.name, {})[rack] = pick
        trees = {job.name: question.grow(job, of_job[job.name]) for job in question.routed}
        wider = {job.name: question.summing_everywhere(job, trees[job.name]) for job in question.routed}
        for candidate in (trees, wider):
            worth = score(question.evaluate(candidate))
            if best is None or worth > best[0]:
                best = (worth, candidate)
    return {} if best is None else best[1]
