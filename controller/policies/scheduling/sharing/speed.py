"""Speeds of jobs that share GPUs: an interference model as the simulator's speed model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Group
from controller.policies.scheduling.sharing.interference import InterferenceModel, Load, load_of
from controller.policies.scheduling.sharing.interval import USUAL_COST, PreemptionCost


class SharedSpeed:
    """Jobs run at the speeds of `interference`, beside the members and neighbours of their group.

    A first start is free; every other one costs as much as a preemption. Jobs that do not fit into the memory
    beside the others take turns with them, which favours policies that ignore memory.
    """

    def __init__(
        self,
        interference: InterferenceModel,
        *,
        load_of: Callable[[Submission], Load] = load_of,
        cost: PreemptionCost = USUAL_COST,
    ) -> None:
        self._interference = interference
        self._load_of = load_of
        self._cost = cost

    def alone_s(self, job: Submission) -> float:
        """Return the job's own seconds per iteration."""
        return job.iteration_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the seconds per iteration alone, divided by the speeds. Raises UnknownModel."""
        loads = [self._load_of(job.spec) for job in group.jobs]
        others = [self._load_of(job.spec) for job in group.neighbours]
        speeds = [
            self._interference.speed(load, loads[:number] + loads[number + 1 :] + others)
            for number, load in enumerate(loads)
        ]
        turns = 1.0 / (len(loads) + len(others))
        return [job.alone_s / (speed or turns) for job, speed in zip(group.jobs, speeds, strict=True)]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost of a preemption, in seconds, for members that have run before; 0 for the others."""
        return [self._cost.of(job.spec.gpus) if job.starts else 0.0 for job in group.jobs]
