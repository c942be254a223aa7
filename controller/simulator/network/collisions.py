"""Collisions in a shared region: consecutive packets also collide with runs of other jobs' packets.

A job's packets in flight take consecutive slots, from a random position. Jobs whose runs of slots overlap
keep colliding, even if the region has as many slots as all need: only the part that runs at random positions
cover is used. If there is room for `APART` times as much, overlapping runs separate, because the one that
loses falls behind.
"""

from __future__ import annotations

import numpy as np

from controller.policies.placement.waterfill import Floats, Flows, Ints

APART = 2.0

TOO_LONG = 2.0
"""A run of so many times as many packets as its pool has slots. Where jobs with such runs share a pool, most
packets find no slot, and what fallback servers, time-outs and windows then do is not modelled: compared with
packets, times of jobs are 63 % less to 44 % more."""


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


def crowded(parts: Floats, flows: Flows) -> Ints:
    """Return the numbers of jobs that share pools in which some run is `TOO_LONG`, in ascending order.

    `parts` is what `run_lengths` returns.
    """
    summing = np.flatnonzero(flows.pool >= 0)
    pool, pools = flows.pool[summing], len(flows.pool_bps)
    long = np.bincount(pool, parts[summing] > TOO_LONG, pools) > 0
    here = long & (np.bincount(pool, minlength=pools) > 1)
    return np.unique(flows.job[summing[here[pool]]])


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
