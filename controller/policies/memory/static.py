"""A static partition: every job has an equal part of each of its switches (SwitchML, NSDI'21).

Slots that a job does not use stay idle. O(jobs * switches).

>>> from controller.vocabulary import Job, fabrics
>>> job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h2"))
>>> from dataclasses import replace
>>> two = (job, replace(job, name="b"))
>>> static(Question(two, fabrics.star(2, fabrics.Parts(slots=100)))).regions["b"]
{'s1': Region(offset=50, size=50)}
"""

from __future__ import annotations

from controller.policies.memory.policy import Answer, Question, Standing, demands
from controller.vocabulary import Job, Region


def static(question: Question) -> Answer:
    """Divide each switch equally among the jobs that are summed there. Raises BadSpec for unplaced jobs."""
    regions: dict[str, dict[str, Region]] = {job.name: {} for job in question.jobs}
    for switch in question.topology.switches:
        here = question.at(switch.name)
        for number, job in enumerate(here):
            regions[job.name][switch.name] = _part(switch.slots, number, len(here), job)
    return Answer(regions, dict.fromkeys(regions, Standing.GRANTED), demands(question, question.jobs))


def _part(slots: int, number: int, count: int, job: Job) -> Region:
    begin, end = slots * number // count, slots * (number + 1) // count
    size = end - begin
    if job.mode == "exclusive" and size:
        size = 1 << (size.bit_length() - 1)
    return Region(begin, size)
