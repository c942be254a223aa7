"""The switches of a run, and the ports of its workers: pure functions of a topology."""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.vocabulary import BadSpec, Topology, tree
from ina.errors import BadRun

SLOW_BPS = 250e6
"""On slower links a window of 128 packets of 1 KiB takes longer than workers' time-outs allow."""
MAX_CHILDREN = 32  # bits of the contribution bitmap (p4src/include/config.p4)


def has_slow_links(topology: Topology) -> bool:
    """Return whether a link is so slow that time-outs must follow the pace of results."""
    return any(0 < link.rate_bps < SLOW_BPS for link in topology.links)


def plan(fan_outs: Sequence[int], jobs: Sequence[int], *, fallback: bool) -> Topology:
    """Return a tree of switches with a link for every worker of jobs that run at the same time.

    Args:
        fan_outs: Children per switch, level by level; the last one counts machines. A machine runs up to one
            worker of each job.
        jobs: Workers of each job.
        fallback: The root also gets a link for a fallback server.

    Raises:
        BadRun: a job is larger than the tree, or a switch would need too many ports.
    """
    *inner, machines = fan_outs
    leaves = math.prod(inner)
    for workers in jobs:
        if workers > leaves * machines:
            shape = "x".join(map(str, fan_outs))
            raise BadRun(f"{workers} workers: a tree of {shape} has {leaves * machines} machines")
    links = sum(-(-workers // leaves) for workers in jobs)
    try:
        topology = tree([*inner, links], servers=int(fallback))
        _ = topology.ports  # refuses more links than a switch has ports
        return topology
    except BadSpec as error:
        raise BadRun(str(error)) from error
