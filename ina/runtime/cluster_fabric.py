"""Jobs on running switches and machines that a cluster file describes: ranks found by machine name."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

from controller import Fleet, Member, SwitchSession, connect
from controller.errors import ProgramMismatch
from controller.switches import forwarding
from controller.switches.cabling import fallback_udp_port, unplugged
from controller.switches.model import SWITCH_MAC, Uplink
from controller.vocabulary import Topology
from ina.runtime import programs
from ina.runtime.agents import Agents
from ina.runtime.errors import BadRun
from ina.runtime.fabric import FoundSwitch, SwitchFabric
from ina.runtime.fallback_process import Fallback
from ina.runtime.machine_hosts import MachineHosts, identified, reached_at, switch_ip
from ina.runtime.remote_fallback import RemoteFallback
from ina.runtime.spec import Attachment, ClusterSpec, FabricSpec

T = TypeVar("T")


class ClusterFabric(SwitchFabric):
    """The switches of a cluster file, for one job on some of its machines."""

    def __init__(
        self,
        spec: FabricSpec,
        cluster: ClusterSpec,
        topology: Topology,
        at: Mapping[str, SwitchSession],
        *,
        server: str | None,
        hosts: MachineHosts,
    ) -> None:
        """Use switches that are connected.

        Args:
            spec: The switches' program.
            cluster: The cluster file.
            topology: The same, with the root of the job's tree.
            at: The switches of the tree.
            server: The machine of the fallback server; None: there is none.
            hosts: The machines of the job.
        """
        switches = {name: FoundSwitch(address_of(topology, name)) for name in at}
        super().__init__(spec, topology, switches, Fleet(at), hosts)
        self._cluster = cluster
        self._topology = topology
        self._server = server

    @property
    def lease_s(self) -> float | None:
        """Time for which a job stays admitted if nobody renews its lease."""
        return self._cluster.lease_s

    @property
    def server_host(self) -> str:
        """The machine of the fallback server. Raises BadRun if there is none."""
        if self._server is None:
            raise BadRun(
                f"{self.offers.title} shares slots and needs a fallback server: no machine of the cluster "
                "file without a worker of this job has the role fallback, or a fallback_port (one with GPUs "
                "and a fallback_port may have a worker, if the job is on other machines, too)"
            )
        return self._server

    def fallback_uplink(self) -> Uplink:
        """Return the uplink from the root to the fallback server. Raises BadRun."""
        topology, server = self._topology, self.server_host
        udp_port = fallback_udp_port(topology, server)
        port = topology.port_to(self.root, server)
        return Uplink(port, topology.mac(server), topology.ip(server), udp_port)

    def beside(self, members: dict[str, list[Member]]) -> tuple[dict[str, list[Member]], Member | None]:
        """Return a job's workers without the one on the fallback server's machine, and that one."""
        return unplugged(members, self.server_host, self._topology)

    def _fallback_process(self, port: int) -> Fallback:
        server = self._topology.server[self.server_host]
        address = (reached_at(self._topology, server.name), server.serves_fallback_at)
        return RemoteFallback(port, server.name, address, self._cluster.secret, lanes=self.offers.lanes)


@contextlib.contextmanager
def opened(
    spec: FabricSpec, cluster: ClusterSpec, places: Sequence[str], launch_with: str | None = None
) -> Iterator[ClusterFabric]:
    """Connect to the switches between these machines, and have them run the program.

    Where jobs share slots, the tree's root is the switch of the fallback server's machine, which is one
    without a worker of the job if there is such a one.

    Args:
        spec: The program that the switches are to run.
        cluster: The switches and machines.
        places: Names of the job's machines, one each.
        launch_with: Command that starts ranks on a machine (`agents.launch_command`); None: others do.

    Raises:
        BadRun: a machine is not in the file, is there twice, or a switch has no address.
        ProgramMismatch, ControllerError: a switch runs another program, or cannot be asked.
        LaunchError: nothing can be started on a machine, or it has another version.
    """
    topology = cluster.topology
    _check_places(topology, places)
    with contextlib.ExitStack() as stack:
        agents = None
        if launch_with is not None:  # they start while the switches are asked
            machines = {place: reached_at(topology, place) for place in places}
            agents = stack.enter_context(Agents.launched(machines, launch_with))
        at = {topology.root: stack.enter_context(_connected(topology, topology.root, cluster))}
        _load(spec, cluster, at)
        server = None
        if at[topology.root].info().shared:
            server = server_for(topology, places)
            if server is not None:
                topology = replace(topology, root=topology.rack_of[server])
        for switch in sorted(_between(topology, places) - at.keys()):
            at[switch] = stack.enter_context(_connected(topology, switch, cluster))
        _load(spec, cluster, at)
        for controller in at.values():  # kernels ask who has the address that they send to
            controller.install([forwarding.own_address(switch_ip(topology), SWITCH_MAC)])
        if agents is not None:
            agents.ready()
        hosts = MachineHosts(topology, places, lambda machines: _there(agents), listen=cluster.listen)
        fabric = ClusterFabric(spec, cluster, topology, at, server=server, hosts=hosts)
        stack.callback(fabric.close)
        yield fabric


def address_of(topology: Topology, switch: str) -> str:
    """Return the address of a switch's P4Runtime service, as `controller.connect` takes it. Raises BadRun."""
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
    """Return the machine whose fallback server a job uses; None: there is none.

    Preferred are machines without a worker of the job, then those at the file's root. One with a worker,
    which is then beside the server, has GPUs in the file, and is not the only machine of the job.
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


def _there(agents: Agents | None) -> AbstractContextManager[Agents]:
    assert agents is not None, "others start the workers"
    return contextlib.nullcontext(agents)


def _between(topology: Topology, places: Sequence[str]) -> set[str]:
    """Return the switches on the ways from machines to the root."""
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


def _load(spec: FabricSpec, cluster: ClusterSpec, at: Mapping[str, SwitchSession]) -> None:
    """Have all switches run the program, and one that offers the same. Raises ProgramMismatch and others."""
    offers = None
    for switch, controller in at.items():
        address = address_of(cluster.topology, switch)
        asked = Attachment(address=address, tls=cluster.tls, replace_program=cluster.replace_program)
        programs.load(spec, asked, controller)
        info = controller.info()
        if offers is not None and not info.covers(offers):
            raise ProgramMismatch(f"switch {switch!r} runs {info.title}, but the others run {offers.title}")
        offers = offers or info
