"""Choice of a job's fallback server: near its root, where most bandwidth is left."""

from __future__ import annotations

import numpy as np

from controller.placement.flows import State, directions
from controller.placement.trees import racks_of, ways_to
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
    load = state.load_bps
    own = set(job.hosts)
    serving = {server.name for server in topology.servers if server.fallback_port} or topology.server.keys()

    def distance(rack: str) -> tuple[bool, int, int]:
        return (not topology.switch[rack].aggregates, int(ways[order[rack]]), order[rack])

    racks = sorted(topology.racks, key=distance)
    beside = {server.name for server in topology.servers if server.serves_beside_workers} & own
    for possible in (serving - own, beside if len(own) > 1 else ()):
        for rack in racks:
            choices = [server for server in topology.racks[rack] if server in possible]
            if choices:
                links = [directions(topology, rack, server)[0] for server in choices]
                left = np.array([topology.links[link // 2].rate_bps - load[link] for link in links])
                return choices[int(left.argmax())]
    return None
