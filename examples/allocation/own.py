"""Your own policies: ``ina alloc --policy examples/allocation/own.py:by_size``, and two more."""

from controller.policies.memory.policy import Answer, Standing
from controller.vocabulary import Region


def by_size(question):
    """Divide each switch in proportion to the jobs' models."""
    regions = {job.name: {} for job in question.jobs}
    for switch in question.topology.switches:
        jobs = question.at(switch.name)
        whole, begin = sum(job.model_bytes for job in jobs), 0
        for job in jobs:
            size = switch.slots * job.model_bytes // whole
            regions[job.name][switch.name] = Region(begin, size)
            begin += size
    return Answer(regions, dict.fromkeys(regions, Standing.GRANTED))


def first_fit(question, job):
    """Place a job on the first GPUs that are free."""
    free = [name for name, room in question.room(job).items() for _ in range(room)]
    return free[: job.workers] if len(free) >= job.workers else None


def straight(question):
    """Send everything to the root, which alone sums."""
    return {job.name: question.grow(job, {}) for job in question.routed}
