"""The topology of the switches that a run starts, and the speed of links: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.vocabulary import BadSpec, Topology, tree
from ina.errors import BadRun

SLOW_BPS = 250e6
"""Rate of links below which a window of 128 packets of 1 KiB takes longer than workers' usual time-outs."""
MAX_CHILDREN = 32  # bits of the contribution bitmap (p4src/include/config.p4)


def has_slow_links(topology: Topology) -> bool:
    """Return whether a link is so slow that workers must adapt their time-outs to its speed."""
    return any(0 < link.rate_bps < SLOW_BPS for link in topology.links)


def plan(fan_outs: Sequence[int], jobs: Sequence[int], *, fallback: bool) -> Topology:
    """Return a tree of switches with a link for every worker of jobs that run at the same time.

    Args:
        fan_outs: Children per switch, level by level; the last number counts machines. A machine runs at most
            one worker of each job.
        jobs: The number of workers of each job.
        fallback: Whether the root also gets a link for a fallback server.

    Raises:
        BadRun: a job is larger than the tree, or a switch would need too many ports.
    """
    *inner, machines = fan_outs
    leaves = math.prod(inner)
    for workers in jobs:
        if workers > leaves * machines:
            shape = "x".join(map(str, fan_outs))
            raise BadRun(
                f"{workers} workers: a tree of {shape} has {leaves * machines} machines, one for each"
            )
    links = sum(-(-workers // leaves) for workers in jobs)
    try:
        topology = tree([*inner, links], servers=int(fallback))
        _ = topology.ports  # refuses more links than a switch has ports
        return topology
    except BadSpec as error:
        raise BadRun(str(error)) from error
