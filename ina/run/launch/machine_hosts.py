"""The machines of a cluster file: their names and addresses, and the start of ranks there."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from controller import Member
from controller.switches.model import INA_UDP_PORT, SWITCH_IP
from controller.vocabulary.topology import FALLBACK_PORT, Topology
from hostlib.io.interfaces import known_as
from hostlib.launch.launcher import Output, Rendezvous, RunningWorkers
from ina.errors import BadRun
from ina.run.launch.agents import Agents, RemoteWorkers
from ina.run.launch.hosts import UdpHosts
from ina.run.launch.spec import LaunchSpec

T = TypeVar("T")

StartAgents = Callable[[Mapping[str, str]], AbstractContextManager[Agents]]
"""Function that starts an agent on each machine, and returns a context manager that ends the agents. Its
argument maps the machines' names to their addresses."""


class MachineHosts(UdpHosts):
    """The machines of a cluster file, each with an agent that starts ranks there."""

    def __init__(
        self, topology: Topology, machines: Sequence[str], start: StartAgents, *, listen: str | None = None
    ) -> None:
        """Store the arguments, and look up the machines' addresses; start no agents.

        Args:
            topology: The switches and machines, with their addresses.
            machines: The machines of the job.
            start: Called to start the agents of these machines when the job starts.
            listen: Address of this machine at which ranks meet; None: the address at which the first machine
                reaches this machine.
        """
        super().__init__(switch_address(topology))
        self._topology = topology
        self._machines = {name: reached_at(topology, name) for name in machines}
        self._start = start
        self._listen = listen
        self._workers: RemoteWorkers | None = None

    @property
    def group_host(self) -> str:
        """Address of this machine at which workers on other machines reach its `TurnServer`.

        Workers also report their progress to it.
        """
        return address_towards(next(iter(self._machines.values())))

    def inside(self, member: Member, call: Callable[[str], T]) -> T:
        """Return the result of `call`, called with the address at which workers reach this machine."""
        return call(self._listen or address_towards(reached_at(self._topology, self.machine(member))))

    @contextlib.contextmanager
    def prepared(self, member: Member) -> Iterator[tuple[str, int]]:
        """Run the agents of all machines while the context lasts; yield a TCP address for torch's store.

        The address is on the worker's machine, where the agent has reserved its port.
        """
        machine = self.machine(member)
        with self._start(self._machines) as self._agents:
            self._agents.ready()
            yield reached_at(self._topology, machine), self._agents.store_port(machine)

    def environment(self, member: Member) -> Mapping[str, str]:
        """Return the environment variable ``GLOO_SOCKET_IFNAME`` of a worker.

        It names the network interface for gloo. The result is empty if gloo's own choice must be used.
        """
        server = self._topology.server[self.machine(member)]
        return {"GLOO_SOCKET_IFNAME": server.interface} if server.interface and not server.address else {}

    def start_workers(
        self,
        spec: LaunchSpec,
        environments: Sequence[Mapping[str, str]],
        rendezvous: Rendezvous,
        on_output: Output,
    ) -> RunningWorkers:
        """Start the workers of a job on their machines; see `Hosts.start_workers`."""
        ranks = dict(zip(spec.places, spec.machines, strict=True))
        command = spec.job.command or ()
        self._workers = RemoteWorkers(
            self._agents, ranks, command, environments, rendezvous, on_output, spec.inherited
        )
        return self._workers

    def machine(self, member: Member) -> str:
        """Return the name of a worker's machine."""
        return next(name for name in self._topology.server if self._topology.ip(name) == member.ip)

    @property
    def lost(self) -> Mapping[str, str]:
        """By name of each lost machine, why it is lost; the workers of lost machines count as failed."""
        return self._workers.lost if self._workers else {}


def address_towards(host: str) -> str:
    """Return the address at which `host` can reach this machine. Raises BadRun without a route to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, FALLBACK_PORT))  # sends nothing
        except OSError as error:
            raise BadRun(f"no route from this machine to {host}: {error.strerror}") from error
        return str(probe.getsockname()[0])


def reached_at(topology: Topology, machine: str) -> str:
    """Return the IP address at which processes of other machines reach the machine `machine`."""
    return topology.server[machine].address or topology.ip(machine)


def identified(topology: Topology, known_as: Sequence[str]) -> str:
    """Return the name of the machine in the cluster file that has one of the names or addresses `known_as`.

    If a name matches, and `known_as` also has addresses, the machine's address in the file must be one of
    them. Raises BadRun if no machine matches.
    """
    by_ip = {topology.ip(name): name for name in topology.server}
    addresses = [each for each in known_as if each.count(".") == 3 and each.replace(".", "").isdecimal()]
    shown = ", ".join(known_as)
    for each in known_as:
        name = next((name for name in (each, each.partition(".")[0]) if name in topology.server), None)
        if name is None or each in addresses:
            continue
        if addresses and topology.ip(name) not in addresses:
            raise BadRun(
                f"machine {name!r} has the addresses {', '.join(addresses)}, but the cluster file has "
                f"{topology.ip(name)}: 'ina host' on that machine prints the right lines"
            )
        return name
    for each in addresses:
        if each in by_ip:
            return by_ip[each]
    names = list(topology.server)
    more = f", … ({len(names)})" if len(names) > 8 else ""
    raise BadRun(
        f"machine {shown} is not in the cluster file, which has {', '.join(names[:8])}{more}: 'ina host' "
        "on that machine prints the lines to add"
    )


def this_machine(topology: Topology) -> str | None:
    """Return the name of this machine in the cluster file; None: the file does not have this machine."""
    try:
        return identified(topology, known_as())
    except BadRun:
        return None


def switch_address(topology: Topology) -> str:
    """Return the IP:PORT to which workers and fallback servers send their packets."""
    return f"{switch_ip(topology)}:{INA_UDP_PORT}"


def switch_ip(topology: Topology) -> str:
    """Return the IP address to which workers and fallback servers send packets for the switches."""
    return topology.switch_ip or SWITCH_IP
