"""Collisions in a shared region: consecutive packets also collide with runs of other jobs' packets.

A job's packets in flight take consecutive slots, from a random position. Jobs whose runs of slots overlap
keep colliding, even if the region has as many slots as all need: only the part that runs at random positions
cover is used. If there is room for `APART` times as much, overlapping runs separate, because the one that
loses falls behind.
"""

from __future__ import annotations

import numpy as np

from controller.placement.waterfill import Floats, Flows

APART = 2.0


def usable(parts: Floats, pool: np.ndarray, pools: int) -> Floats:
    """Return the fraction of each pool that runs covering such `parts` of it can use.

    `pool` is the pool of each run.

    >>> usable(np.array([0.5, 0.5, 0.5, 0.2, 0.2]), np.array([0, 0, 1, 2, 2]), 3)
    array([0.75, 1.  , 1.  ])
    """
    whole = np.bincount(pool, parts, pools)
    count = np.bincount(pool, minlength=pools)
    with np.errstate(divide="ignore"):
        free = np.exp(np.bincount(pool, np.log1p(-np.minimum(parts, 1.0)), pools))
    return np.where((count > 1) & (whole * APART > 1.0), 1.0 - free, 1.0)


def run_lengths(flows: Flows) -> Floats:
    """Return for each node the fraction of its pool that its job needs at the rate of its servers' links."""
    fastest = np.full(flows.jobs, np.inf)
    sends = flows.source > 0
    np.minimum.at(fastest, flows.job[sends], flows.link_bps[flows.link[sends]])
    summing = flows.pool >= 0
    bits = np.append(flows.pool_bps, 0.0)[np.where(summing, flows.pool, -1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = fastest[flows.job] * flows.held / bits
    return np.where(summing & (bits > 0), part, 0.0)
