"""The switches of a run: started with it, or already running; their controllers and fallback server."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import softswitch
from bmv2_topos.impairments import link_impairments, outgoing
from controller import ControllerError, Fleet, SwitchSession, connect
from controller.errors import Unreachable
from controller.p4runtime_shim.ports import ports_of
from controller.switches import forwarding
from controller.switches.model import INA_UDP_PORT, SWITCH_MAC, SwitchInfo
from controller.vocabulary.topology import Link, Server, Topology
from hostlib.launch.launcher import parse_address
from ina.errors import BadRun, ProcessFailed
from ina.run.fallback.process import FallbackProcess, FallbackServers
from ina.run.launch import PRIVATE
from ina.run.launch.hosts import HostAddresses, Hosts, PortHosts, UdpHosts, port_socket
from ina.run.launch.spec import (
    DEFAULT_LANES,
    DEFAULT_PROGRAM,
    UDP_BASE,
    WORKER_BASE,
    Attachment,
    FabricSpec,
)
from ina.run.switches import programs
from ina.run.switches.switch_process import EmbeddedSwitch
from ina.run.switches.topology import plan

ATTACHED = "s1"
"""Name that a run gives to the running switch of an `Attachment`."""


def server_at_root(topology: Topology, offers: SwitchInfo) -> str:
    """Return the host at the topology's root for the fallback server. Raises BadRun if there is none."""
    hosts = topology.servers_for("fallback")
    for host in hosts:
        if topology.rack_of[host] == topology.root:
            return host
    elsewhere = ", ".join(f"{host} at {topology.rack_of[host]}" for host in hosts) or "none"
    raise BadRun(
        f"{offers.title} shares slots and needs a fallback server, and the topology has no server with the "
        f"role fallback at its root {topology.root} (elsewhere: {elsewhere}): link one to {topology.root}, "
        "or choose another root"
    )


class SwitchProcess(Protocol):
    """A switch that is a process of this machine."""

    @property
    def pid(self) -> int:
        """The process id."""

    def ended(self) -> str | None:
        """Return a text that says how the process ended; None while it runs."""


@dataclass(frozen=True, slots=True)
class AttachedSwitch:
    """A switch that another process runs.

    `told` has the addresses of ports that the switch has reported; any other port p is at UDP port `base` + p
    of `host`.
    """

    host: str
    base: int
    told: Mapping[int, str] = field(default_factory=dict)

    def udp_address(self, port: int) -> str:
        """Return the address to which a port's UDP socket is bound."""
        return self.told.get(port, f"{self.host}:{self.base + port}")

    def shm_path(self, port: int) -> str | None:
        """Return None: all ports of such a switch are UDP ports."""
        return None


@dataclass(kw_only=True, eq=False)
class SwitchFabric:
    """The switches of one command, and the sessions that control them.

    Attributes:
        spec: The requested switches and program.
        topology: Switches, hosts and links; None: an attached switch, on which the controller chooses ports.
        fleet: The sessions with all switches; hold `lock` during calls to them.
        hosts: The hosts on which workers run.
        fallbacks: The fallback server of all jobs, once a job needs it.
        processes: The switches that are processes of this machine, by name.
        queue_packets: Number of packets that a port of slow switches can queue, which limits windows; None:
            the switches are not slow.
        server: The host of the fallback server; None: the first suitable host at the root.
        hosts_for: Reserves N hosts that no other process uses; None: no other process uses these hosts.
        fallback_switch_port: The root's port for the fallback server; None: no job has needed it yet.
        silent: Why a switch did not answer the last request; None: all answered.
        taken: The hosts that jobs of this process use.
    """

    spec: FabricSpec
    topology: Topology | None
    fleet: Fleet
    hosts: Hosts
    fallbacks: FallbackServers
    processes: Mapping[str, SwitchProcess] = field(default_factory=dict)
    queue_packets: int | None = None
    server: str | None = None
    hosts_for: Callable[[int], AbstractContextManager[list[str]]] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    fallback_switch_port: int | None = field(default=None, init=False)
    silent: str | None = field(default=None, init=False)
    taken: set[str] = field(default_factory=set, init=False)

    @property
    def root(self) -> str:
        """The root switch's name."""
        return self.topology.root if self.topology else next(iter(self.fleet.controllers))

    @cached_property
    def offers(self) -> SwitchInfo:
        """What the switches' program offers to jobs: lanes, slots, features. Raises ControllerError."""
        return self.fleet.controllers[self.root].info()

    @property
    def asked_by_others(self) -> bool:
        """Whether other processes, too, can send requests to the switches' P4Runtime."""
        return self.spec.lease_s is not None or self.spec.p4runtime != PRIVATE

    @property
    def server_host(self) -> str:
        """The host of the fallback server. Raises BadRun if the root has none."""
        assert self.topology is not None, "a running switch has no hosts"
        return self.server or server_at_root(self.topology, self.offers)

    def host_beside(self, host: str) -> str:
        """Return a host that is not in `taken` at the switch of `host`; add a host and a port if all are.

        The new port is of the kind of the other ports: shared memory, or UDP.

        Raises:
            BadSpec: the switch has no further port.
            ProcessFailed: the port could not be opened.
        """
        topology = self.topology
        assert topology is not None, "a running switch has no hosts"
        rack = topology.rack_of[host]
        for free in topology.servers_for("worker"):
            if topology.rack_of[free] == rack and free not in self.taken:
                return free
        switch = self._embedded()[rack]
        assert isinstance(self.hosts, PortHosts)
        addresses = self.hosts.addresses
        name = f"h{len(topology.servers) + 1}"
        topology = replace(
            topology,
            servers=(*topology.servers, Server(name)),
            links=(*topology.links, Link(name, rack)),
        )
        port = topology.port_to(rack, name)  # refuses more links than a switch has ports
        spec = "shm"
        if not _shares_memory(self.spec):
            spec = f"udp::{addresses.reserve(rack, port)[1]}"
        switch.add_port(port, spec, self.spec.impairments)
        if spec != "shm":
            addresses.expect(rack, port, parse_address(switch.udp_address(port)))
        self.topology = topology
        return name

    def restart(self, name: str) -> str | None:
        """Restart a switch that this process has started; its tables are then empty.

        Returns why the restart failed; None if it succeeded.
        """
        switch = self._embedded()[name]
        with self.lock:
            try:
                switch.restart()
                self.fleet.controllers[name].close()
                self.fleet.controllers[name] = control(switch, self.spec)
            except (ProcessFailed, ControllerError) as error:
                return str(error)
        return None

    def switch_ended(self) -> str | None:
        """Return a text that says how a switch ended; None while all switches run."""
        return next(filter(None, (switch.ended() for switch in self.processes.values())), None)

    @contextlib.contextmanager
    def asking(self, *, again: bool = False) -> Iterator[None]:
        """Hold the lock for requests to the switches inside the context.

        Raises Unreachable at once if a switch did not answer an earlier request: the end of a job needs
        several requests, and each would wait anew for a switch that hangs. With `again`, does not raise: the
        renewal of leases uses it to find out whether the switch answers again. Only fabrics whose jobs have
        leases store that a switch did not answer.
        """
        with self.lock:
            if self.silent is not None and not again:
                raise Unreachable(self.silent)
            try:
                yield
            except Unreachable as error:
                if self.asked_by_others:
                    self.silent = self.silent or str(error)
                raise

    def refused(self) -> dict[str, int]:
        """Return the number of refused packets that belong to no job, by reason; leave out zeros.

        The reason `stranger` counts packets that a UDP port of a switch or a host received from a sender that
        is not the port's peer. Raises ControllerError.
        """
        strangers = self.hosts.strangers() + sum(each.strangers() for each in self._embedded().values())
        with self.asking():
            return +sum(map(Counter, self.fleet.refused().values()), Counter(stranger=strangers))

    def close(self) -> None:
        """Stop the fallback server, and disconnect from the switches without stopping them."""
        self.fallbacks.close()
        for controller in self.fleet.controllers.values():
            controller.close()

    def _embedded(self) -> dict[str, EmbeddedSwitch]:
        """Return the switches that this process has started."""
        return {name: each for name, each in self.processes.items() if isinstance(each, EmbeddedSwitch)}


@contextlib.contextmanager
def open_fabric(
    spec: FabricSpec,
    jobs: Sequence[int],
    *,
    on_listening: Callable[[str, str], None] = lambda switch, address: None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[SwitchFabric]:
    """Start the switches for jobs that run at the same time, or connect to a running switch.

    Args:
        spec: The switches.
        jobs: The number of workers of each job.
        on_listening: Called with name and address of each switch whose P4Runtime other processes may use.
        meanwhile: Called while the switches start, before this function waits for them.

    Raises:
        BadRun: the jobs have too many workers, or a switch of `FabricSpec.transit` does not exist.
        ProcessFailed: a switch did not start.
        AddressTaken: another process has the address of a host.
        ControllerError: a switch cannot be reached, or refuses the program.
    """
    with contextlib.ExitStack() as stack:
        fabric = (
            _attached(spec, spec.attached, stack)
            if spec.attached
            else _started(spec, jobs, on_listening, meanwhile, stack)
        )
        stack.callback(fabric.close)
        yield fabric


def _attached(spec: FabricSpec, attached: Attachment, stack: contextlib.ExitStack) -> SwitchFabric:
    controller = stack.enter_context(connect(attached.address, tls=attached.tls))
    programs.load(spec, controller)
    attached, switch, addresses = _with_ports(attached)
    stack.callback(addresses.close)
    hosts: Hosts = PortHosts({ATTACHED: switch}, addresses)
    if attached.machines:  # they send ARP requests for the switch's address
        controller.install([forwarding.own_address(attached.ip, SWITCH_MAC)])
        hosts = UdpHosts(f"{attached.ip}:{INA_UDP_PORT}")
    fabric = SwitchFabric(
        spec=replace(spec, attached=attached),
        topology=None,
        fleet=Fleet({ATTACHED: controller}),
        hosts=hosts,
        fallbacks=FallbackServers(lambda *_: _fallback_process(fabric)),
    )
    return fabric


def _started(
    spec: FabricSpec,
    jobs: Sequence[int],
    on_listening: Callable[[str, str], None],
    meanwhile: Callable[[], object],
    stack: contextlib.ExitStack,
) -> SwitchFabric:
    addresses = stack.enter_context(contextlib.closing(HostAddresses()))
    topology = spec.topology
    if topology is None:
        spec, offers = programs.settled(spec)
        topology = plan(spec.tree or (max(max(jobs), 1),), jobs, fallback=offers.shared)
    _check_transit(spec, topology)
    switches = _start(spec, topology, addresses, stack)
    meanwhile()
    if spec.p4runtime != PRIVATE:
        for name, switch in switches.items():
            on_listening(name, switch.address)
    controllers = {name: stack.enter_context(control(switch, spec)) for name, switch in switches.items()}
    fabric = SwitchFabric(
        spec=replace(spec, lease_s=None),
        topology=topology,
        fleet=Fleet(controllers),
        hosts=PortHosts(switches, addresses),
        fallbacks=FallbackServers(lambda *_: _fallback_process(fabric)),
        processes=switches,
    )
    return fabric


def _fallback_process(fabric: SwitchFabric) -> FallbackProcess:
    """Start a fallback server on this machine. Raises ProcessFailed or AddressTaken."""
    assert isinstance(fabric.hosts, PortHosts)
    assert fabric.fallback_switch_port is not None
    local, switch = fabric.hosts.ends(fabric.root, fabric.fallback_switch_port)
    lanes = str(fabric.offers.lanes)
    return FallbackProcess(["--switch", switch, "--lanes", lanes, "--local", local, "--held"])


def control(switch: EmbeddedSwitch, spec: FabricSpec) -> SwitchSession:
    """Connect to a started switch. Raises ControllerError; ProcessFailed if the switch has ended."""
    try:
        controller = connect(switch.address)
        if spec.p4runtime == PRIVATE:
            controller.keep_turn()
        return controller
    except ControllerError as error:
        if why := switch.ended():
            raise ProcessFailed(why) from error
        raise


def _with_ports(attached: Attachment) -> tuple[Attachment, AttachedSwitch, HostAddresses]:
    """Ask a running switch for its ports, and find the UDP addresses at both ends of each port.

    Returns the attachment with the usable ports, the addresses at the switch, and the workers' addresses. If
    neither the switch nor the user gives an address, the UDP port is a base port plus the switch port's
    number. Raises BadRun if the switch has none of the requested ports.
    """
    reported = ports_of(attached.address, attached.tls)
    bases = (attached.udp_base or UDP_BASE, attached.worker_base or WORKER_BASE)
    if reported is None:
        return attached, AttachedSwitch(*bases[0]), HostAddresses(*bases[1])
    usable = tuple(port for port in attached.ports if port in reported)
    if not usable:
        raise BadRun(
            f"the switch at {attached.address} has ports {', '.join(map(str, reported))}, but no given port",
            setting="ports",
            value=f"{min(attached.ports)}-{max(attached.ports)}",
        )
    ends = {port: reported[port] for port in usable}
    udp = {port: each.udp for port, each in ends.items() if each.udp and attached.udp_base is None}
    addresses = HostAddresses(*bases[1])
    if attached.worker_base is None:
        addresses.chosen = {port: parse_address(each.peer) for port, each in ends.items() if each.peer}
    return replace(attached, ports=usable), AttachedSwitch(*bases[0], told=udp), addresses


def _check_transit(spec: FabricSpec, topology: Topology) -> None:
    names = [switch.name for switch in topology.switches if switch.name != topology.root]
    for name in sorted(spec.transit):
        if name not in names:
            known = f"want one of {', '.join(names)}" if names else "one switch has no transit switches"
            raise BadRun(known, setting="transit", value=repr(name))


def _start(
    spec: FabricSpec, topology: Topology, addresses: HostAddresses, stack: contextlib.ExitStack
) -> dict[str, EmbeddedSwitch]:
    """Open the sockets of all ports, so that each port knows its peer's address; start all switches."""
    switches: dict[str, EmbeddedSwitch] = {}
    shared = topology.servers_for("worker") if _shares_memory(spec) else ()
    sockets = {
        (switch.name, port): stack.enter_context(port_socket())
        for switch in topology.switches
        for port, link in topology.ports[switch.name].items()
        if link.other(switch.name) not in shared
    }
    alone = len(topology.switches) == 1
    for number, switch in enumerate(topology.switches):
        name = switch.name
        # The random losses differ between switches, and are the same in every run.
        arguments = [
            *("--program", spec.program or DEFAULT_PROGRAM, "--lanes", str(spec.lanes or DEFAULT_LANES)),
            *("--seed", str(spec.seed + number)),
        ]
        for port, link in topology.ports[name].items():
            other = link.other(name)
            trunk = other in topology.ports
            if other in shared:
                arguments += ["--port", f"{port}=shm"]
            else:
                own = sockets[name, port]
                if trunk:
                    peer = sockets[other, topology.port_to(other, name)].getsockname()
                else:
                    peer = addresses.hold(name, port, own.getsockname())
                arguments += ["--port", f"{port}=socket:{own.fileno()}:{peer[1]}"]
            impairments = spec.link_impairments if trunk else spec.impairments
            if spec.topology is not None:
                impairments = link_impairments(link)
            if impairments:
                # A link between switches has two ports: each sets the faults of its outgoing packets.
                arguments += ["--impair", f"{port}:{outgoing(impairments) if trunk else impairments}"]
        if spec.captures is not None:
            arguments += spec.captures.options(name)
        title = "the switch process" if alone else f"the process of switch {name}"
        fds = [sock.fileno() for (of, _), sock in sockets.items() if of == name]
        p4runtime = _p4runtime(spec.p4runtime, number)
        switches[name] = stack.enter_context(
            EmbeddedSwitch(arguments, p4runtime=p4runtime, title=title, pass_fds=fds)
        )
    return switches


def _shares_memory(spec: FabricSpec) -> bool:
    """Return whether workers must reach the switches through shared memory."""
    return spec.port_kind == "shm" or (spec.port_kind == "auto" and softswitch.has_compiler())


def _p4runtime(first: str, number: int) -> str:
    """Return the P4Runtime address of the switch with this number; `first` is the address of number 0."""
    if first == PRIVATE:
        return first
    host, colon, port = first.rpartition(":")
    return f"{host}{colon}{int(port) + number if int(port) else 0}"
