"""One array that all jobs share, first come, first served (ATP, NSDI'21; A2TP, EuroSys'23).

O(jobs * switches).

>>> from controller.vocabulary import Job, fabrics
>>> job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h2"))
>>> common(Question((job,), fabrics.star(2, fabrics.Parts(slots=100)))).regions
{'a': {'s1': Region(offset=0, size=100)}}
"""

from __future__ import annotations

from controller.policies.memory.policy import (
    Answer,
    Question,
    Standing,
    demands,
    everywhere,
    refuse_exclusive,
)
from controller.vocabulary import Region


def common(question: Question) -> Answer:
    """Give every job all slots of its switches. Raises BadSpec for unplaced and exclusive jobs."""
    refuse_exclusive(question)
    whole = {switch.name: Region(0, switch.slots) for switch in question.topology.switches}
    regions = {job.name: everywhere(question, job, whole) for job in question.jobs}
    return Answer(regions, dict.fromkeys(regions, Standing.SHARED), demands(question, question.jobs))
