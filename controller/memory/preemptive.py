"""Memory by urgency alone: the most urgent job gets all slots that its links can use (as ESA's preemption).

In ESA (2022) a packet of higher priority takes the slot of one of lower priority. Over many packets that is
as if the most urgent job had as many slots as its slowest link keeps busy, the next job as many of the
remaining ones, and so on; the rest is shared. Jobs are ordered by deadline, then by work left. O(n log n).

>>> from controller.vocabulary import Job, fabrics
>>> job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h2"))
>>> preemptive(Question((job,), fabrics.star(2))).regions
{'a': {'s1': Region(offset=0, size=977)}}
"""

from __future__ import annotations

from controller.memory.deadline import arrange
from controller.memory.demand import slots_for
from controller.memory.policy import Answer, Question, Standing, demands, everywhere, refuse_exclusive
from controller.vocabulary import Job, Region


def preemptive(question: Question) -> Answer:
    """Grant the slots that links can use, by urgency. Raises BadSpec for unplaced and exclusive jobs."""
    refuse_exclusive(question)
    sizes: dict[str, dict[str, int]] = {switch.name: {} for switch in question.topology.switches}
    left = {switch.name: switch.slots for switch in question.topology.switches}
    standing = dict.fromkeys((job.name for job in question.jobs), Standing.SHARED)
    for job in sorted(question.jobs, key=_urgency):
        at = question.switches[job.name]
        if not at or not min(left[name] for name in at):
            continue
        standing[job.name] = Standing.GRANTED
        for name in at:
            wanted = slots_for(job, question.topology.switch[name], question.link_bps(job), question.reading)
            sizes[name][job.name] = min(wanted, left[name])
            left[name] -= sizes[name][job.name]
    regions: dict[str, dict[str, Region]] = {job.name: {} for job in question.jobs}
    rest: dict[str, Region] = {}
    for switch in question.topology.switches:
        held = {name: on[switch.name] for name, on in question.held.items() if switch.name in on}
        placed, rest[switch.name] = arrange(switch.slots, sizes[switch.name], held)
        for name, region in placed.items():
            regions[name][switch.name] = region
    for job in question.jobs:
        if standing[job.name] is Standing.SHARED:
            regions[job.name] = everywhere(question, job, rest)
    return Answer(regions, standing, demands(question, question.jobs))


def _urgency(job: Job) -> tuple[float, float, str]:
    due_s = job.due_s if job.due_s is not None else float("inf")
    return (due_s, job.iterations * job.iteration_at_s(float("inf")), job.name)
