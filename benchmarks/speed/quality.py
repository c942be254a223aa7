"""Loss of the fast matching against the exact one, round by round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.policies.grouping.matching import Pairs, Weigh, match
from controller.policies.grouping.rounds import Profile, group


def losses_against_exact(profiles: Sequence[Profile], *, members: int | None = None) -> list[float]:
    """Group `profiles`; return the part of an exact matching's weight that each round loses.

    Takes as long as the exact matching: a few seconds for 1,000 jobs, growing with n^3. Raises as `group`.
    """
    found: list[float] = []

    def both(count: int, weigh: Weigh, kinds: Sequence[int], places: NDArray[np.float64] | None) -> Pairs:
        pairs = match(count, weigh, kinds, places)
        exact = _total(weigh, match(count, weigh, exact=True))
        found.append(1.0 - _total(weigh, pairs) / exact if exact else 0.0)
        return pairs

    group(profiles, members=members, matcher=both)
    return found


def _total(weigh: Weigh, pairs: Pairs) -> float:
    return sum(float(weigh(np.array([u]), np.array([v]))[0, 0]) for u, v in pairs)
