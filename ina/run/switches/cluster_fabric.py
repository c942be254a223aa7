"""Running switches and machines that a cluster file describes, for jobs whose machines are given by name."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from controller import ControllerError, Fleet, ProgramMismatch, SwitchSession, connect
from controller.switches import forwarding
from controller.switches.model import SWITCH_MAC
from controller.vocabulary import Topology
from ina.errors import BadRun
from ina.run.fallback.process import FallbackServers
from ina.run.fallback.remote import RemoteFallback
from ina.run.launch.agents import Agents
from ina.run.launch.machine_hosts import MachineHosts, identified, reached_at, switch_ip
from ina.run.launch.spec import ClusterSpec, FabricSpec
from ina.run.switches import programs
from ina.run.switches.fabric import SwitchFabric

SWEEP_S: Final = 5.0
"""Interval, in seconds, at which `sweep` looks for jobs with an expired lease."""

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def opened(
    spec: FabricSpec, cluster: ClusterSpec, places: Sequence[str], launch_with: str | None = None
) -> Iterator[SwitchFabric]:
    """Connect to the switches between these machines, and load the program on them.

    If slots are shared, the root of the tree is the switch of the fallback server's machine; a machine
    without a worker of the job is preferred for the fallback server.

    Args:
        spec: The switches' desired program.
        cluster: The switches and machines.
        places: Names of the job's machines, each once.
        launch_with: Command that starts ranks on a machine (`agents.launch_command`); None: another launcher
            starts them.

    Raises:
        BadRun: a machine is not in the file, or is named twice; a switch has no address; or slots are shared,
            and no machine can have the fallback server.
        ProgramMismatch, ControllerError: a switch runs another program, or does not answer.
        LaunchError: no process can be started on a machine, or the machine has another version of ina.
    """
    topology = cluster.topology
    _check_places(topology, places)
    with contextlib.ExitStack() as stack:
        agents = Agents({})
        if launch_with is not None:  # agents start while the switches are asked
            machines = {place: reached_at(topology, place) for place in places}
            agents = stack.enter_context(Agents.launched(machines, launch_with))
        at = {topology.root: stack.enter_context(_connected(topology, topology.root, cluster))}
        _load(spec, at)
        server = None
        if (offers := at[topology.root].info()).shared:
            server = server_for(topology, places)
            if server is None:
                raise BadRun(
                    f"{offers.title} shares slots and needs a fallback server: no machine of the cluster file"
                    " without a worker of this job has the role fallback, or a fallback_port (one with GPUs"
                    " and a fallback_port may have a worker, if the job is on other machines, too)"
                )
            topology = replace(topology, root=topology.rack_of[server])
        for switch in sorted(_between(topology, places) - at.keys()):
            at[switch] = stack.enter_context(_connected(topology, switch, cluster))
        _load(spec, at)
        for controller in at.values():  # machines send ARP requests for the switches' address
            controller.install([forwarding.own_address(switch_ip(topology), SWITCH_MAC)])
        agents.ready()
        hosts = MachineHosts(
            topology, places, lambda machines: contextlib.nullcontext(agents), listen=cluster.listen
        )

        def connected(*_: object) -> RemoteFallback:
            assert server is not None
            address = reached_at(topology, server), topology.server[server].serves_fallback_at
            return RemoteFallback(server, address, cluster.secret, lanes=fabric.offers.lanes)

        fabric = SwitchFabric(
            spec=spec,
            topology=topology,
            fleet=Fleet(at),
            hosts=hosts,
            server=server,
            fallbacks=FallbackServers(connected),
        )
        stack.callback(fabric.close)
        yield fabric


def address_of(topology: Topology, switch: str) -> str:
    """Return the address of a switch's P4Runtime service, HOST:PORT or unix:PATH.

    Raises BadRun if the cluster file has no address for the switch.
    """
    address = topology.switch[switch].p4runtime.removeprefix("grpc://")
    if not address:
        raise BadRun(
            f"switch {switch!r} has no p4runtime in the cluster file: want grpc://HOST:PORT or unix:PATH"
        )
    return address


def _check_places(topology: Topology, places: Sequence[str]) -> None:
    for place in places:
        if place not in topology.server:
            identified(topology, [place])
        if places.count(place) > 1:
            raise BadRun(f"machine {place!r} is given twice, but a switch port serves only one worker")


def server_for(topology: Topology, places: Collection[str]) -> str | None:
    """Return a machine for the fallback server of a job on the machines `places`; None if none is suitable.

    Prefers machines without a worker of the job, then machines at the root switch. A machine with a worker
    is suitable if it has GPUs in the cluster file, and is not the only machine of the job.
    """
    found = [
        server.name
        for server in topology.servers
        if server.serves_fallback_at
        and (server.name not in places or (server.serves_beside_workers and len(places) > 1))
    ]
    return min(
        found, key=lambda name: (name in places, topology.rack_of[name] != topology.root), default=None
    )


def _between(topology: Topology, places: Sequence[str]) -> set[str]:
    """Return the switches on the paths from these machines to the root."""
    parents = topology.parents
    found = {topology.root}
    for place in places:
        node: str | None = topology.rack_of[place]
        while node is not None:
            found.add(node)
            node = parents[node]
    return found


def _connected(topology: Topology, switch: str, cluster: ClusterSpec) -> SwitchSession:
    return connect(address_of(topology, switch), tls=cluster.tls)


def _load(spec: FabricSpec, at: Mapping[str, SwitchSession]) -> None:
    """Load the program on all switches. Raises ProgramMismatch if a switch cannot serve the same jobs."""
    offers = None
    for switch, controller in at.items():
        programs.load(spec, controller)
        info = controller.info()
        if offers is not None and not info.covers(offers):
            raise ProgramMismatch(
                f"switch {switch!r} runs {info.title}, but other switches run {offers.title}"
            )
        offers = offers or info


def sweep(topology: Topology, stopped: threading.Event) -> None:
    """Remove jobs with expired leases from the switches of a cluster file, until `stopped` is set.

    The process that renews a job's lease, its holder, such as ``ina admit``, is on the machine of rank 0, and
    may die with that machine. Other processes remove jobs without a holder only when they admit the next job.
    The process of the fallback server, which always runs, removes them at once. Switches without a p4runtime
    in the file are left out.
    """
    fleets = {
        each.name: Fleet({each.name: connect(address_of(topology, each.name), at_once=False)})
        for each in topology.switches
        if each.p4runtime
    }
    silent: set[str] = set()
    while True:
        for name, fleet in fleets.items():
            try:
                for job in fleet.sweep()[name]:
                    holder = job.registration.holder if job.registration is not None else ""
                    who = f" of {holder}" if holder else ""
                    _log.warning(
                        "job %d%s had no holder any more; removed from switch %s", job.job, who, name
                    )
                silent.discard(name)
            except ControllerError as error:
                level = logging.DEBUG if name in silent else logging.WARNING
                _log.log(level, "cannot look for jobs without a holder on switch %s: %s", name, error)
                silent.add(name)
        if stopped.wait(SWEEP_S):
            return
