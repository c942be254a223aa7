"""What a routed job asks of the switches: from a tree of `controller.routing` to a deployment. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from controller.errors import BadSpec
from controller.switches.layout import Branch, Deployment, Downlink
from controller.switches.model import INA_UDP_PORT, Member, Uplink, ipv4_from_int, mac_from_int
from controller.vocabulary import Region
from controller.workload import Cluster, TrainingJob
from controller.workload.model import Tree
from controller.workload.trees import way_to_fallback


def deployment_of(
    cluster: Cluster,
    job: TrainingJob,
    tree: Tree,
    *,
    slots: int = 0,
    window: int | None = None,
    regions: Mapping[str, Region] | None = None,
) -> Deployment:
    """Return what is given to `controller.Fleet.admit`; each server is a rank, in the order of `hosts`.

    Ports of a switch are numbered from 1 in the order of the cluster's links, servers' addresses are
    02:00:00:00:00:01 and 10.0.0.1 for the first and so on, as in `bmv2_topos.Topology`.
    `regions` are those of a memory policy, by switch.

    Raises BadSpec for a job whose root does not sum, for its fallback server does all, and for one whose
    fallback server is behind a switch of the tree: it must hang on the root.
    """
    if tree.root not in tree.aggregators or not job.aggregate:
        raise BadSpec(f"job {job.name!r} is not summed at its root, {tree.root!r}: no switch has to admit it")
    ports = _ports(cluster)
    numbers = {server.name: number for number, server in enumerate(cluster.servers, 1)}
    children: dict[str, list[str]] = {}
    for child, parent in tree.parents.items():
        children.setdefault(parent, []).append(child)

    def grow(name: str) -> Branch:
        members = tuple(
            Member(rank, ports[name][host], *_address(numbers[host]), INA_UDP_PORT)
            for rank, host in enumerate(job.hosts)
            if cluster.rack_of[host] == name
        )
        links = tuple(
            Downlink(ports[name][child], grow(child), ports[child][name]) for child in children.get(name, ())
        )
        region = (regions or {}).get(name)
        return Branch(name, members, links, region=region, transit=name not in tree.aggregators)

    fallback = None
    if job.fallback and job.mode == "shared":
        way = [*way_to_fallback(cluster, job, tree), job.fallback]
        if tree.parents.get(way[1]) == tree.root:
            raise BadSpec(
                f"job {job.name!r}: its fallback server {job.fallback!r} is behind {way[1]!r}, a switch of"
                f" the tree; want one at the root, {tree.root!r}, or off the tree"
            )
        fallback = Uplink(ports[tree.root][way[1]], *_address(numbers[job.fallback]))
    return Deployment(grow(tree.root), slots, mode=job.mode, window=window, fallback=fallback)


def _ports(cluster: Cluster) -> dict[str, dict[str, int]]:
    ports: dict[str, dict[str, int]] = {switch.name: {} for switch in cluster.switches}
    for link in cluster.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            if here in ports:
                ports[here][there] = len(ports[here]) + 1
    return ports


def _address(number: int) -> tuple[str, str]:
    return mac_from_int(0x0200_0000_0000 + number), ipv4_from_int(0x0A00_0000 + number)
