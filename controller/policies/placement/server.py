"""Choice of a job's fallback server: near its root, where most bandwidth is left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from controller.policies.placement.flows import State, directions
from controller.policies.placement.trees import racks_of, ways_to
from controller.vocabulary import Job


def choose_fallback(state: State, job: Job) -> str | None:
    """Return the fallback server of a placed job; None if there is none.

    Where some servers have a `fallback_port`, fallback servers are on those only; else on any but its own.
    One of its own servers, whose worker is then beside it, is chosen only if there is no other. Its switch
    becomes the root, so racks whose switch sums come first, nearest to the job's servers; there,
    the server whose link has most bandwidth left in the steady state is chosen (NetPack's parameter server).
    O(racks² + servers of the nearest).
    """
    topology = state.topology
    ways = ways_to(topology, racks_of(topology, job))
    order = topology.number_of
    own, serving = set(job.hosts), topology.serving

    def distance(rack: str) -> tuple[bool, int, int]:
        return (not topology.switch[rack].aggregates, int(ways[order[rack]]), order[rack])

    racks = sorted(topology.racks, key=distance)
    for rack in racks:
        if choices := [server for server in topology.racks[rack] if server in serving and server not in own]:
            return _least_loaded(state, rack, choices)
    for rack in racks if len(own) > 1 else ():
        there = (topology.server[server] for server in topology.racks[rack] if server in own)
        if choices := [server.name for server in there if server.serves_beside_workers]:
            return _least_loaded(state, rack, choices)
    return None


def _least_loaded(state: State, rack: str, servers: Sequence[str]) -> str:
    """Return which of the servers at a switch has most bandwidth left, the first of equal ones."""
    links = [directions(state.topology, rack, server)[0] for server in servers]
    load = state.load_bps
    left = np.array([state.topology.links[link // 2].capacity_bps - load[link] for link in links])
    return servers[int(left.argmax())]
