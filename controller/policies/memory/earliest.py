"""Memory by deadline, and what is left of it by deadline too: a simple policy to compare `deadline` with.

Each job with a deadline, earliest first, is granted the slots that it needs, while slots last; then, in the
same order, as many more as its links can use, so that a job that could end early does not hold its slots
until its deadline. The others share the rest. O(n log n) per switch.

>>> from controller.vocabulary import Job, fabrics
>>> job = Job(
...     name="a", workers=2, layers_bytes=(12_500_000,), iterations=100, compute_s=0.09, deadline_s=10,
...     servers=("h1", "h2"),
... )
>>> earliest(Question((job,), fabrics.star(2))).regions
{'a': {'s1': Region(offset=0, size=977)}}
"""

from __future__ import annotations

from controller.policies.memory.deadline import grants
from controller.policies.memory.policy import Answer, Question, demands, refuse_exclusive
from controller.policies.memory.preemptive import by_urgency


def earliest(question: Question) -> Answer:
    """Grant needs and the rest by deadline, and end the jobs that cannot meet theirs even alone.

    Raises BadSpec for unplaced and exclusive jobs.
    """
    refuse_exclusive(question)
    wanted = demands(question, question.jobs)
    ended = frozenset(name for name, need in wanted.items() if not need.feasible)
    return by_urgency(question, grants(question, wanted, lazy=False), ended, best_effort=False)
