"""Interference models: the speed of one job beside other jobs, relative to its speed alone.

All sources of such speeds have the same interface, `InterferenceModel`: the true speeds (`pairs.Scaling`),
measurements of them (`pairs.NoisyInterference`), and the forests' predictions (`forests.Forests`). A
policy works with any of these sources. `InterferenceSpeed` makes such a source the simulator's speed model.

Errors of sharing for heterogeneous job sizes::

    SchedulingError
    └── SharingError
        ├── UnknownModel    a job whose kind was not measured
        ├── BadMeasurement  invalid speeds, reference jobs or profile
        └── BadTraining     too little to train on, or options out of range
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from controller.policies.scheduling.errors import BadInput, SchedulingError
from controller.policies.scheduling.policy import Group, Submission


class SharingError(SchedulingError):
    """Base class of this package's errors."""


class UnknownModel(SharingError):
    """A kind of job that was not measured."""

    def __init__(self, kind: str, known: Iterable[str]) -> None:
        names = sorted(known)
        few = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        super().__init__(f"nothing was measured of {kind!r}; known are {few or 'none'}")
        self.kind = kind


class BadMeasurement(SharingError, BadInput):
    """Invalid measurements."""


class BadTraining(SharingError):
    """Too little to train on, or options out of range."""


class Load(NamedTuple):
    """What a job's interference depends on: its kind (usually its model) and number of GPUs."""

    kind: str
    gpus: int


def load_of(spec: Submission) -> Load:
    """Return the load of a job, whose kind is the name of its model."""
    return Load(spec.model, spec.gpus)


class InterferenceModel(Protocol):
    """A source of jobs' speeds beside other jobs; 1 is a job's speed alone."""

    @property
    def kinds(self) -> Collection[str]:
        """The known kinds."""

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the speed of `load` when each of its GPUs has at most one of the jobs `beside`.

        Of any two jobs that share GPUs, the larger one uses all GPUs of the smaller one. The order of
        `beside` does not matter. The speed is 1 if `beside` is empty, and 0 if the jobs do not fit into the
        GPUs' memory together. Raises UnknownModel.
        """


def require(interference: InterferenceModel, load: Load) -> None:
    """Raise UnknownModel if `interference` does not know the kind of `load`."""
    if load.kind not in interference.kinds:
        raise UnknownModel(load.kind, interference.kinds)


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


class InterferenceSpeed:
    """Speed model: jobs that share GPUs, or a server, slow each other down as `interference` says.

    A first start is free; every further start costs as much as a preemption. Jobs that together do not fit
    into memory take turns, which favours policies that ignore memory.
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
        """Return the time of one iteration of each member, in seconds: its time alone divided by its speed.

        Raises UnknownModel.
        """
        loads = [self._load_of(job.spec) for job in group.jobs]
        others = [self._load_of(job.spec) for job in group.neighbours]
        speeds = [
            self._interference.speed(load, loads[:number] + loads[number + 1 :] + others)
            for number, load in enumerate(loads)
        ]
        turns = 1.0 / (len(loads) + len(others))
        return [job.alone_s / (speed or turns) for job, speed in zip(group.jobs, speeds, strict=True)]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost of a start for each member, in seconds; 0 for a member that has not run before."""
        return [self._cost.of(job.spec.gpus) if job.starts else 0.0 for job in group.jobs]
