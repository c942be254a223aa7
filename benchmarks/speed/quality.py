"""Loss of the fast matching against the exact one, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.policies.grouping.efficiency import Profile
from controller.policies.grouping.matching import Pairs, Weigh, match
from controller.policies.grouping.rounds import group


@dataclass(frozen=True, slots=True)
class Round:
    """One round of matching: nodes, and the total weight of the fast and of the exact matching."""

    nodes: int
    weight: float
    exact_weight: float

    @property
    def loss(self) -> float:
        """Return the fraction of the exact matching's weight that the fast one loses."""
        return 1.0 - self.weight / self.exact_weight if self.exact_weight else 0.0


def rounds_against_exact(profiles: Sequence[Profile], *, members: int | None = None) -> list[Round]:
    """Group `profiles`; return each round with the weight of an exact matching of the same nodes.

    Takes as long as the exact matching: a few seconds for 1,000 jobs, growing with n^3. Raises as `group`.
    """
    found: list[Round] = []

    def both(count: int, weigh: Weigh, kinds: Sequence[int], places: NDArray[np.float64] | None) -> Pairs:
        pairs = match(count, weigh, kinds, places)
        best = match(count, weigh, exact=True)
        found.append(Round(count, _total(weigh, pairs), _total(weigh, best)))
        return pairs

    group(profiles, members=members, matcher=both)
    return found


def _total(weigh: Weigh, pairs: Pairs) -> float:
    return sum(float(weigh(np.array([u]), np.array([v]))[0, 0]) for u, v in pairs)
