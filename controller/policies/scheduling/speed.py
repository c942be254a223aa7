"""Speed models that need only the jobs' own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.policies.scheduling.policy import Group, SpeedModel

CONTENTION = (1.0, 1.33 / 1.015, 1.5 / 1.015, 1.37 / 1.015)
"""Ratio of a round's measured to its computed length for one, two, three and four jobs, divided by the ratio
for one job; measured on Muri's testbed."""


@dataclass(frozen=True, slots=True)
class ExclusiveSpeed(SpeedModel):
    """Speed model in which jobs run at their own speeds, and jobs that share GPUs take turns.

    `restart_scale` scales the jobs' own restart costs; 0: restarts are free.
    """

    restart_scale: float = 1.0

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the members' own seconds per iteration times the number of jobs on their GPUs."""
        sharing = len(group.jobs) + len(group.neighbours)
        return [job.alone_s * sharing for job in group.jobs]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return each member's own cost of a restart, in seconds."""
        return [job.spec.restart_s * self.restart_scale for job in group.jobs]


@dataclass(frozen=True, slots=True)
class InterleavedSpeed(SpeedModel):
    """Speed model: jobs of a group interleave their stages.

    The length of a round is the result of Muri's equation 3 times a factor. `contention` has this factor for
    one to four jobs, as Muri's authors measured it on their testbed. `longest` chooses the worst order of
    stages instead of the best. Jobs without stage times take turns for whole iterations. `restart_scale` is a
    factor on the jobs' own restart costs.
    """

    contention: tuple[float, ...] = CONTENTION
    longest: bool = False
    restart_scale: float = 1.0

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the length of a round, in seconds, for each member."""
        jobs = group.jobs
        if len(jobs) == 1 or not all(job.spec.stages_s for job in jobs):
            return [job.alone_s * (len(jobs) + len(group.neighbours)) for job in jobs]
        from controller.policies.grouping.rounds import best, worst
        from controller.policies.scheduling.ranked import profile

        interleave = worst if self.longest else best
        length_s = interleave([profile(job.spec) for job in jobs]).round_s
        return (length_s * self.contention[len(jobs) - 1],) * len(jobs)

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return, for each member, the sum of all members' restart costs: members start one by one."""
        together_s = sum(job.spec.restart_s for job in group.jobs)
        return (together_s * self.restart_scale,) * len(group.jobs)


@dataclass(frozen=True, slots=True)
class PreemptionCost:
    """Cost of stopping and restarting a job: time that the job loses, in seconds.

    Attributes:
        within_s: Cost for a job that fits into one node, the patent's m1. The default is from Lucid's
            simulator.
        beyond_s: Cost for a larger job, the patent's m2.
        node_gpus: GPUs of a node.
    """

    within_s: float = 40.0
    beyond_s: float = 60.0
    node_gpus: int = 8

    def of(self, gpus: int) -> float:
        """Return the cost in seconds for a job with this number of GPUs."""
        return self.within_s if gpus <= self.node_gpus else self.beyond_s


USUAL_COST = PreemptionCost()
