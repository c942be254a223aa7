"""Speed of a job with the CPUs and the memory that it was granted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Group
from controller.policies.scheduling.synergy.demand import Demand

DemandOf = Callable[[Submission], Demand]
"""A job's demand; the same for equal jobs."""


class SharedSpeed:
    """Speed by sensitivity: a job takes `spec.iteration_s` with its fair share, less with more by its matrix.

    A grant counts as the fastest option of the job's demand within it, and at least as the floor, below which
    no allocator goes. Groups without grants run at the fair share. `restart_scale` scales the jobs' own
    restart costs; 0: restarts are free, as in Synergy's simulations. A change of CPUs and memory on the same
    GPUs is not a restart.
    """

    def __init__(self, demand_of: DemandOf, *, restart_scale: float = 0.0) -> None:
        self._demand_of = demand_of
        self._restart_scale = restart_scale

    def alone_s(self, job: Submission) -> float:
        """Return the job's own seconds per iteration, which are for the fair share."""
        return job.iteration_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the job's seconds per iteration with the group's grant."""
        if len(group.jobs) != 1:
            raise BadSpec(f"{len(group.jobs)} jobs on one set of GPUs; Synergy gives each job its own GPUs")
        spec = group.jobs[0].spec
        return [spec.iteration_s / self.speed(spec, group)]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return each member's own cost of a restart, in seconds."""
        return [job.spec.restart_s * self._restart_scale for job in group.jobs]

    def speed(self, spec: Submission, group: Group) -> float:
        """Return the speed relative to the fair share."""
        if not group.cpus:
            return 1.0
        return self._demand_of(spec).speed(group.cpus[0] / spec.gpus, group.memory_gb[0] / spec.gpus)
