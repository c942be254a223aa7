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

from collections.abc import Collection, Mapping

from controller.policies.memory.deadline import divided
from controller.policies.memory.demand import slots_for
from controller.policies.memory.policy import Answer, Question, Standing, demands, refuse_exclusive
from controller.vocabulary import Job


def preemptive(question: Question) -> Answer:
    """Grant the slots that links can use, by urgency. Raises BadSpec for unplaced and exclusive jobs."""
    return by_urgency(question, {}, frozenset())


def preemptive_ending(question: Question) -> Answer:
    """Grant as `preemptive`, and end the jobs that cannot meet their deadlines even alone."""
    wanted = demands(question, question.jobs)
    return by_urgency(question, {}, frozenset(name for name, need in wanted.items() if not need.feasible))


def by_urgency(
    question: Question,
    needs: Mapping[str, Mapping[str, int]],
    ended: Collection[str],
    *,
    best_effort: bool = True,
) -> Answer:
    """Return the answer that grants needs, then the slots that links can use, by urgency.

    Args:
        question: The jobs; none of them exclusive.
        needs: Slots at each switch that jobs are granted before all others, by job; they fit together.
        ended: Names of the jobs to end.
        best_effort: Whether jobs without a deadline are granted slots, too; otherwise they share the rest.
    """
    refuse_exclusive(question)
    sizes = {
        switch.name: {name: need[switch.name] for name, need in needs.items() if switch.name in need}
        for switch in question.topology.switches
    }
    left = {
        switch.name: switch.slots - sum(sizes[switch.name].values()) for switch in question.topology.switches
    }
    standing = {
        job.name: Standing.ENDED if job.name in ended else Standing.SHARED for job in question.jobs
    } | dict.fromkeys(needs, Standing.GRANTED)
    wanting = (job for job in question.jobs if best_effort or job.deadline_s is not None)
    for job in sorted((job for job in wanting if job.name not in ended), key=_urgency):
        at = question.switches[job.name]
        granted = {name: sizes[name].get(job.name, 0) for name in at}
        if not at or not min(left[name] + granted[name] for name in at):
            continue
        standing[job.name] = Standing.GRANTED
        for name in at:
            wanted = slots_for(job, question.topology.switch[name], question.link_bps(job), question.reading)
            sizes[name][job.name] = max(granted[name], min(wanted, left[name] + granted[name]))
            left[name] -= sizes[name][job.name] - granted[name]
    return divided(question, sizes, standing)


def _urgency(job: Job) -> tuple[float, float, str]:
    due_s = job.due_s if job.due_s is not None else float("inf")
    return (due_s, job.iterations * job.iteration_at_s(float("inf")), job.name)
