"""The server that sums what finds no memory: near the root of the job, where most bandwidth is left."""

from __future__ import annotations

import numpy as np

from controller.placement.flows import State, directions
from controller.workload import TrainingJob
from controller.workload.trees import tree_of


def choose_fallback(state: State, job: TrainingJob) -> str | None:
    """Return the fallback server of a placed job: not one of its own; None if there is no other.

    Of those with the fewest links to the root, the one whose link has most left in the steady state is
    chosen (NetPack's parameter server). O(racks + servers of the nearest).
    """
    cluster = state.cluster
    hops = cluster.hops(tree_of(cluster, job).root)
    order = {switch.name: number for number, switch in enumerate(cluster.switches)}
    load = state.load_bps
    own = set(job.hosts)
    for rack in sorted(cluster.racks, key=lambda rack: (hops[order[rack]], order[rack])):
        choices = [server for server in cluster.racks[rack] if server not in own]
        if choices:
            links = [directions(cluster, rack, server)[0] for server in choices]
            left = np.array([cluster.links[link // 2].rate_bps - load[link] for link in links])
            return choices[int(left.argmax())]
    return None
