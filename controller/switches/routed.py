"""What a routed job asks of the switches: from a tree of `controller.routing` to a deployment. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.errors import BadSpec
from controller.switches.cabling import grow, plugged
from controller.switches.layout import Deployment
from controller.switches.model import Uplink
from controller.vocabulary import Job, Region, Topology, Tree


def deployment_of(
    cluster: Topology,
    job: Job,
    tree: Tree,
    *,
    slots: int = 0,
    window: int | None = None,
    regions: Mapping[str, Region] | None = None,
    udp_ports: Sequence[int] | None = None,
) -> Deployment:
    """Return what is given to `controller.Fleet.admit`; each server is a rank, in the order of `hosts`.

    Ports and addresses are the topology's (`Topology.ports`, `mac`, `ip`).
    `regions` are those of a memory policy, by switch; `udp_ports` where its servers take packets (`plugged`).

    Raises BadSpec for a job whose root does not sum, for its fallback server does all, and for one whose
    fallback server is behind a switch of the tree: it must hang on the root.
    """
    if tree.root not in tree.aggregators or not job.aggregate:
        raise BadSpec(f"job {job.name!r} is not summed at its root, {tree.root!r}: no switch has to admit it")
    members = plugged(cluster, job.hosts, udp_ports)
    transit = {name for name in tree.switches if name not in tree.aggregators}
    root = grow(cluster, tree.root, tree.parents, members, regions=regions or {}, transit=transit)
    fallback = None
    if job.fallback and job.mode == "shared":
        way = (*cluster.way(tree.root, cluster.rack_of[job.fallback]), job.fallback)
        if tree.parents.get(way[1]) == tree.root:
            raise BadSpec(
                f"job {job.name!r}: its fallback server {job.fallback!r} is behind {way[1]!r}, a switch of"
                f" the tree; want one at the root, {tree.root!r}, or off the tree"
            )
        port = cluster.port_to(tree.root, way[1])
        fallback = Uplink(port, cluster.mac(job.fallback), cluster.ip(job.fallback))
    return Deployment(root, slots, mode=job.mode, window=window, fallback=fallback)
