"""An interference model: the speed of one job beside others, relative to its speed alone.

All sources of such speeds have this one method: the true speeds (`scaling`), measurements of them
(`scaling.Noisy`), and the forests' predictions (`models`). So a policy works with any of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.sharing.errors import UnknownModel


class Load(NamedTuple):
    """Properties of a job that interference depends on: its kind (its model, as a rule) and its GPUs."""

    kind: str
    gpus: int


def load_of(spec: Submission) -> Load:
    """Return the load of a job: its model's name is its kind."""
    return Load(spec.model, spec.gpus)


class InterferenceModel(Protocol):
    """Normalised throughput, 1 being a job's throughput alone."""

    @property
    def kinds(self) -> Collection[str]:
        """The kinds that it knows."""

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the speed of `load` when each of its GPUs has at most one of the jobs `beside`.

        Of any two jobs that share GPUs the smaller one lies within the larger one's. The order of `beside`
        does not matter; without any the speed is 1. It is 0 if they do not fit into the GPUs' memory
        together. Raises UnknownModel.
        """


def require(interference: InterferenceModel, load: Load) -> None:
    """Raise UnknownModel if `interference` does not know the kind of `load`."""
    if load.kind not in interference.kinds:
        raise UnknownModel(load.kind, interference.kinds)
