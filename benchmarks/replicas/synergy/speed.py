"""Speeds of jobs in Synergy's public simulator."""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.scheduling.errors import BadSpec
from controller.scheduling.policy import Group
from controller.scheduling.synergy.speed import DemandOf, SharedSpeed


class RoundSpeed(SharedSpeed):
    """As `SharedSpeed`, but a round holds whole iterations only, as there.

    A job that ends within a round holds its GPUs until the round is over, and has ended then: so it is
    with `SteppedRun`. An iteration is taken to be shorter by a billionth,
    so that rounding never lets the last one slip into the next round.
    """

    def __init__(self, demand_of: DemandOf, *, round_s: float = 300.0) -> None:
        super().__init__(demand_of)
        self._round_s = round_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the round's part for each of the iterations that it holds."""
        (granted_s,) = super().iteration_s(group)
        whole = math.floor(self._round_s / granted_s)
        if whole < 1:
            raise BadSpec(
                f"job {group.jobs[0].spec.name!r} needs {granted_s:g} s for an iteration;"
                f" a round of {self._round_s:g} s holds none"
            )
        return [self._round_s / whole * (1 - 1e-9)]
