"""Finds out, by a sum, how many more calls all ranks have submitted, and whether all wait for the first.

Each rank writes a one for each call that it has ready, from the first on that is not agreed on, and one at
the end if it waits for the first. Where the sum is the number of ranks, all have it, or wait. One packet, one
round trip.
"""

from __future__ import annotations

import numpy as np

from hostlib.collectives import PLAIN, Collective, arrays


def ballot(ready: int, lanes: int, *, waits: bool, number: int, description: str, part: str) -> Collective:
    """Return the collective by which ranks vote on the number of ready calls.

    Args:
        ready: Number of this rank's ready calls, below `lanes`.
        lanes: Values per packet.
        waits: This rank submits nothing more before the first is done.
        number: See `Collective`.
        description: See `Collective`.
        part: See `Collective`.
    """
    ones = np.zeros(lanes, np.int32)
    ones[:ready] = 1
    ones[-1] = waits
    staged = arrays.stage(ones, ones)
    return Collective(staged, False, PLAIN, description, number, part=part, calls=0)


def agreed(counted: Collective, size: int) -> tuple[int, bool]:
    """Return how many calls all `size` ranks have submitted, and whether all wait, by the sum of ballots."""
    all_have = counted.staged.target == size
    return int(np.count_nonzero(all_have[:-1])), bool(all_have[-1])
