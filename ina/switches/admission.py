"""Admits a job to the switches of a run and removes it again: table entries, ports, fallback server."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from controller import ControllerError, Member, NoSuchJob, Region, Registration
from controller.switches.layout import Branch, Deployment, TreeAdmission, deployment_of
from controller.switches.model import INA_UDP_PORT, SwitchInfo, Uplink
from controller.vocabulary import Job, Tree
from hostlib import DEFAULT_SLOTS, window_for
from ina.errors import BadRun
from ina.launch.spec import SHARED_WINDOW, LaunchSpec, MachineAtPort
from ina.switches.fabric import SwitchFabric

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def admitted(
    fabric: SwitchFabric,
    spec: LaunchSpec,
    registered: Registration | None,
    region: Region | None = None,
    beside: Sequence[str | None] = (),
) -> Iterator[TreeAdmission]:
    """Admit a job inside the context to the switches and, if its slots are shared, to the fallback server.

    Args:
        fabric: The switches.
        spec: The job.
        registered: What the switches store about the job for other processes; None: nothing.
        region: The job's slots, if slots are shared; None: the slots in `spec`, or all slots.
        beside: Hosts of the ranks, if the job is a group of some ranks of another job. Each of the ranks
            gets a second host, at the same switch.

    Raises:
        ControllerError: a switch refused the job; the job is then on no switch.
        ProcessFailed: the fallback server did not start.
        AddressTaken: another process has the address of one of the job's hosts.
    """
    with contextlib.ExitStack() as stack:
        shared = fabric.offers.shared
        if region is None and shared and spec.job.slots is not None:
            region = Region(spec.first_slot, spec.job.slots)
        if fabric.topology is None:
            deployment = _at_one_switch(fabric, spec, region)
        else:
            deployment = _deployment(fabric, spec, _places(fabric, spec, beside, stack), region)
        with fabric.lock:
            tree = fabric.fleet.admit(deployment, ports=_ports(fabric), registration=registered)
        stack.callback(_remove, fabric, tree)
        if shared:
            from ina.fallback.process import description

            uplink = tree.switches[fabric.root].uplink
            assert uplink is not None
            assert uplink.port is not None
            fallback = fabric.start_fallback(uplink.port)
            fallback.add(tree.job, description(tree))
            stack.callback(fallback.remove, tree.job)
        yield tree


def _places(
    fabric: SwitchFabric, spec: LaunchSpec, beside: Sequence[str | None], stack: contextlib.ExitStack
) -> Sequence[str]:
    """Return the host of each of the job's workers; `stack` ends the reservation of hosts, if any."""
    if spec.places:
        _check_one_each(spec)
        return spec.places
    hosts = [host for host in beside if host is not None]
    reserved = fabric.reserved_beside(hosts) if hosts else fabric.reserved(spec.children)
    return stack.enter_context(reserved)


def _member(rank: int) -> Member:
    return Member(rank, None, f"02:00:00:00:00:{rank + 1:02x}", f"10.0.0.{rank + 1}", INA_UDP_PORT)


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


def _ports(fabric: SwitchFabric) -> dict[str, tuple[int, ...]]:
    """Return the ports from which the controller chooses, by switch; {} if the topology sets the ports."""
    attached = fabric.spec.attached
    return {fabric.root: attached.ports} if attached else {}


def _deployment(
    fabric: SwitchFabric, spec: LaunchSpec, places: Sequence[str], region: Region | None
) -> Deployment:
    """Return the deployment of a job: its workers on the hosts `places`, `region` on each summing switch."""
    topology = fabric.topology
    assert topology is not None  # read now: reserving hosts may have added some
    shared = fabric.offers.shared
    up = topology.towards(topology.root)
    tree = Tree(topology.root, up, frozenset({topology.root, *up} - fabric.spec.transit))
    placed = replace(
        spec.job,
        workers=len(places),
        servers=tuple(places),
        mode="shared" if shared else "exclusive",
        fallback=fabric.server_host if shared else None,
    )
    regions = {} if region is None else dict.fromkeys(tree.switches, region)
    return replace(deployment_of(topology, placed, tree, regions=regions), **_memory(fabric, spec))


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
        members = [_member(rank) for rank in range(spec.children)]
    uplink = None
    if fabric.offers.shared:
        port = fabric.fallback.port if fabric.fallback else None
        uplink = Uplink(port, mac="02:00:00:00:fb:01", ip="10.0.255.2")
    root = Branch(fabric.root, tuple(members), region=region)
    return Deployment(root, **_memory(fabric, spec), fallback=uplink)


def _memory(fabric: SwitchFabric, spec: LaunchSpec) -> dict[str, Any]:
    """Return the fields of a `Deployment` about switch memory: `slots`, or `mode`, `window` and `preempt`."""
    offers, queue, job = fabric.offers, fabric.queue_packets, spec.job
    if not offers.shared:
        default = DEFAULT_SLOTS if queue is None else queue  # the window is half the slots
        return {"slots": default if job.slots is None else job.slots}
    window = shared_window(job, spec.children, offers, queue)
    return {"mode": "shared", "window": window, "preempt": job.preempt and not offers.salted}


def shared_window(job: Job, children: int, offers: SwitchInfo, queue_packets: int | None) -> int:
    """Return the window of a job whose slots are shared, in packets.

    Args:
        job: The job; its own `window` has precedence.
        children: Number of the job's hosts.
        offers: What the switches' program offers to jobs.
        queue_packets: Number of packets that a switch port can queue; None: enough for any window.
    """
    in_flight = job.window
    if in_flight is None:  # the fallback server's port may get the packets of all workers
        in_flight = SHARED_WINDOW if queue_packets is None else max(1, queue_packets // (2 * children))
    return in_flight if offers.salted else window_for(in_flight)


def _remove(fabric: SwitchFabric, tree: TreeAdmission) -> None:
    if fabric.switch_ended() is not None:
        return
    try:
        with fabric.asking():
            fabric.fleet.remove(tree)
    except NoSuchJob:
        return  # another process removed it
    except ControllerError as error:
        _log.warning("job %d may still be on the switch: %s", tree.job, error)
