"""Plans how the switches of a run serve a job: its hosts, ports and slots."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller import Member, Region
from controller.switches.layout import Branch, Deployment, deployment_of
from controller.switches.model import INA_UDP_PORT, SwitchInfo, Uplink
from controller.vocabulary import Job, Topology, Tree
from controller.vocabulary.topology import spread
from hostlib import DEFAULT_SLOTS, window_for
from ina.errors import BadRun
from ina.run.launch.spec import SHARED_WINDOW, LaunchSpec, MachineAtPort
from ina.run.switches.fabric import SwitchFabric


def desired(
    fabric: SwitchFabric, spec: LaunchSpec, region: Region | None, stack: contextlib.ExitStack
) -> Deployment:
    """Return the deployment of a job, for `controller.Fleet.admit`.

    Args:
        fabric: The switches.
        spec: The job.
        region: The job's slots, if slots are shared; None: the slots in `spec`, or all slots.
        stack: Closing it ends the reservation of the job's hosts, if any.

    Raises the errors of `reserved`, and BadRun if several workers would be at one switch port.
    """
    if region is None and fabric.offers.shared and spec.job.slots is not None:
        region = Region(spec.first_slot, spec.job.slots)
    if fabric.topology is None:
        return _at_one_switch(fabric, spec, region)
    if spec.places:
        _check_one_each(spec)
    return _on_hosts(fabric, spec, spec.places or reserved(fabric, spec.children, stack), region)


def reserved(
    fabric: SwitchFabric, workers: int, stack: contextlib.ExitStack, beside: Sequence[str] = ()
) -> Sequence[str]:
    """Return a host for each worker, reserved until `stack` is closed.

    Spreads workers evenly over the switches that have hosts.

    Args:
        fabric: The switches.
        workers: The number of workers.
        stack: Closing it ends the reservation.
        beside: The hosts of a group's ranks in their job: the group gets further hosts at their switches, or
            any free hosts in a topology that the user has given. Empty: the workers are no group.

    Raises:
        BadSpec: too few hosts are free, or a switch has no further port.
        ProcessFailed: a port could not be opened.
    """
    if fabric.hosts_for is not None:
        return stack.enter_context(fabric.hosts_for(workers))
    found: list[str] = []
    with fabric.lock:
        assert fabric.topology is not None
        near = beside if fabric.spec.topology is None else ()
        for host in near or spread(fabric.topology, workers, fabric.taken):
            found.append(fabric.host_beside(host) if near else host)
            fabric.taken.add(found[-1])
            stack.callback(fabric.taken.discard, found[-1])
    return found


def _members_of(machines: Sequence[MachineAtPort], spec: LaunchSpec) -> list[Member]:
    """Return the switch's workers, one on each machine.

    Raises BadRun if there are more or fewer machines than `spec` names, or several workers on one machine.
    """
    _check_one_each(spec)
    if len(machines) != len(spec.machines):
        raise BadRun(
            f"the ranks are on {len(spec.machines)} machines, but {len(machines)} are given: want one "
            "PORT=IP/MAC per machine, in the order of their lowest ranks",
            setting="host",
        )
    return [
        Member(number if spec.hierarchical else ranks[0], machine.port, machine.mac, machine.ip, INA_UDP_PORT)
        for number, (machine, ranks) in enumerate(zip(machines, spec.machines, strict=True))
    ]


def _check_one_each(spec: LaunchSpec) -> None:
    """Raise BadRun if several workers would be at one switch port."""
    if not spec.hierarchical and any(len(ranks) > 1 for ranks in spec.machines):
        raise BadRun("several ranks on one machine need --hierarchical", setting="machines")


def _on_hosts(
    fabric: SwitchFabric, spec: LaunchSpec, hosts: Sequence[str], region: Region | None
) -> Deployment:
    """Return the deployment of a job: its workers on `hosts`, `region` on each switch; None: all slots."""
    topology = fabric.topology
    assert topology is not None  # read now: reserving hosts may have added some
    up = topology.towards(topology.root)
    tree = Tree(topology.root, up, frozenset({topology.root, *up} - fabric.spec.transit))
    placed = replace(
        spec.job,
        workers=len(hosts),
        servers=tuple(hosts),
        tree=tree,
        fallback=fabric.server_host if fabric.offers.shared else None,
    )
    regions = {} if region is None else dict.fromkeys(tree.switches, region)
    return deployment(topology, placed, regions, fabric.offers, fabric.queue_packets)


def deployment(
    topology: Topology,
    job: Job,
    regions: Mapping[str, Region],
    offers: SwitchInfo,
    queue_packets: int | None,
    *,
    udp_ports: Sequence[int] | None = None,
    up: Topology | None = None,
) -> Deployment:
    """Return the deployment of a placed job, for `controller.Fleet.admit`.

    Args:
        topology: Switches, servers and links.
        job: The job, with its servers, tree and fallback server.
        regions: The job's slots by switch; on other switches it may use all slots.
        offers: What the switches' program offers to jobs.
        queue_packets: Number of packets that a switch port can queue; None: enough for any window.
        udp_ports: The job's UDP port on each of its servers; None: all at `INA_UDP_PORT`.
        up: The part of the topology that works; None: all of it.

    Raises BadSpec if the root of the job's tree does not aggregate, or if the path from the root to the job's
    fallback server leads through another switch of the tree.
    """
    assert job.tree is not None
    placed = replace(job, mode="shared" if offers.shared else "exclusive")
    found = deployment_of(topology, placed, job.tree, regions=regions, udp_ports=udp_ports, up=up)
    return replace(found, **_memory(job, len(set(job.servers)), offers, queue_packets))


def _at_one_switch(fabric: SwitchFabric, spec: LaunchSpec, region: Region | None) -> Deployment:
    """Return the deployment of a job on one switch, where the controller chooses ports.

    Args:
        fabric: The switch.
        spec: The job.
        region: The job's slots, if slots are shared; None: all slots.
    """
    attached = fabric.spec.attached
    if attached and attached.machines:
        members = _members_of(attached.machines, spec)
    else:
        members = [
            Member(rank, None, f"02:00:00:00:00:{rank + 1:02x}", f"10.0.0.{rank + 1}", INA_UDP_PORT)
            for rank in range(spec.children)
        ]
    uplink = None
    if fabric.offers.shared:
        uplink = Uplink(fabric.fallback_switch_port, mac="02:00:00:00:fb:01", ip="10.0.255.2")
    root = Branch(fabric.root, tuple(members), region=region)
    memory = _memory(spec.job, spec.children, fabric.offers, fabric.queue_packets)
    return Deployment(root, **memory, fallback=uplink)


def _memory(job: Job, children: int, offers: SwitchInfo, queue_packets: int | None) -> dict[str, Any]:
    """Return the fields of a `Deployment` about switch memory: `slots`, or `mode`, `window` and `preempt`.

    Args:
        job: The job.
        children: Number of the job's hosts.
        offers: What the switches' program offers to jobs.
        queue_packets: Number of packets that a switch port can queue; None: enough for any window.
    """
    if not offers.shared:
        default = DEFAULT_SLOTS if queue_packets is None else queue_packets  # the window is half the slots
        return {"slots": default if job.slots is None else job.slots}
    window = job.window
    if window is None:  # the fallback server's port may get the packets of all workers
        window = SHARED_WINDOW if queue_packets is None else max(1, queue_packets // (2 * children))
    return {
        "mode": "shared",
        "window": window if offers.salted else window_for(window),
        "preempt": job.preempt and not offers.salted,  # programs with salted packets have no preemption
    }
