"""Finds out, by a sum, how many more calls all ranks have submitted.

Each rank writes a one for each call that it has ready, from the first on that is not agreed on. Where the sum
is the number of ranks, all have it. One packet, one round trip.
"""

from __future__ import annotations

import numpy as np

from hostlib import arrays
from hostlib.collectives import Collective


def ballot(ready: int, lanes: int, *, number: int, description: str, part: str) -> Collective:
    """Return the collective by which ranks vote on the number of ready calls.

    Args:
        ready: Number of this rank's ready calls.
        lanes: Values per packet.
        number: See `Collective`.
        description: See `Collective`.
        part: See `Collective`.
    """
    ones = np.zeros(lanes, np.int32)
    ones[:ready] = 1
    staged = arrays.stage(ones, ones)
    return Collective(staged, False, "raise", description, number, part=part, calls=0)


def agreed(counted: Collective, size: int) -> int:
    """Return the number of calls that all `size` ranks have submitted, from the sum of their ballots."""
    return int(np.count_nonzero(counted.staged.target == size))
