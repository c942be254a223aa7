"""Your own policies: ``ina alloc --policy examples/allocation/own.py:by_size``, and two more."""

from controller.policies.memory.policy import MemoryDivision, SlotStatus
from controller.vocabulary import Region


def by_size(problem):
    """Divide each switch in proportion to the jobs' models."""
    regions = {job.name: {} for job in problem.jobs}
    for switch in problem.topology.switches:
        jobs = problem.jobs_at(switch.name)
        whole, begin = sum(job.model_bytes for job in jobs), 0
        for job in jobs:
            size = switch.slots * job.model_bytes // whole
            regions[job.name][switch.name] = Region(begin, size)
            begin += size
    return MemoryDivision(regions, dict.fromkeys(regions, SlotStatus.GRANTED))


def first_fit(problem, job):
    """Place a job on the first GPUs that are free."""
    free = [name for name, room in problem.room(job).items() for _ in range(room)]
    return free[: job.workers] if len(free) >= job.workers else None


def straight(problem):
    """Send everything to the root, which alone sums."""
    return {job.name: problem.grow(job, {}) for job in problem.routed}
