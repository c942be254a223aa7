"""From a job's tree (`controller.policies.routing`) to a deployment on switches. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.errors import BadSpec
from controller.switches.cabling import fallback_udp_port, grow, plugged, unplugged
from controller.switches.layout import Deployment
from controller.switches.model import SWITCH_IP, Uplink
from controller.vocabulary import Job, Region, Topology, Tree


def deployment_of(
    topology: Topology,
    job: Job,
    tree: Tree,
    *,
    slots: int = 0,
    window: int | None = None,
    regions: Mapping[str, Region] | None = None,
    udp_ports: Sequence[int] | None = None,
    up: Topology | None = None,
) -> Deployment:
    """Return the deployment of a routed job, as `controller.Fleet.admit` takes it.

    Each server of `job.hosts` is a rank, in that order. Ports and addresses are the topology's
    (`Topology.ports`, `mac`, `ip`).

    Args:
        topology: Servers, switches and links.
        job: The placed job.
        tree: Its aggregation tree.
        slots: Twice the packets in flight of a worker; see `Part`.
        window: Packets in flight of a worker of a shared job, instead of `slots`.
        regions: Its regions by switch, from a memory policy; None: all slots.
        udp_ports: UDP port of each server; None: all at `INA_UDP_PORT`.
        up: The part of the topology that works, where packets for the fallback server go; None: all of it.

    Raises BadSpec for a job whose root does not sum, because its fallback server does all the work, and for
    one whose fallback server is behind a switch of the tree: it must be linked to the root.
    """
    if tree.root not in tree.aggregators or not job.aggregate:
        raise BadSpec(f"job {job.name!r} is not summed at its root, {tree.root!r}: no switch has to admit it")
    members, beside = plugged(topology, job.hosts, udp_ports), None
    if job.fallback and job.mode == "shared":
        members, beside = unplugged(members, job.fallback, topology)
    transit = {name for name in tree.switches if name not in tree.aggregators}
    root = grow(
        topology,
        tree.root,
        tree.parents,
        members,
        regions=regions or {},
        transit=transit,
        ip=topology.switch_ip or SWITCH_IP,
    )
    fallback = None
    if job.fallback and job.mode == "shared":
        way = (*(up or topology).way(tree.root, topology.rack_of[job.fallback]), job.fallback)
        if tree.parents.get(way[1]) == tree.root:
            raise BadSpec(
                f"job {job.name!r}: its fallback server {job.fallback!r} is behind {way[1]!r}, a switch of"
                f" the tree; want one at the root, {tree.root!r}, or off the tree"
            )
        port = topology.port_to(tree.root, way[1])
        udp_port = fallback_udp_port(topology, job.fallback)
        fallback = Uplink(port, topology.mac(job.fallback), topology.ip(job.fallback), udp_port)
    return Deployment(root, slots, mode=job.mode, window=window, fallback=fallback, beside=beside)
