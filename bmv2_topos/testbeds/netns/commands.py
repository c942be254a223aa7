"""The commands that make a topology of network namespaces, as ``--dry-run`` prints them.

Pure functions, and the kind of switch that adds its own commands.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bmv2_topos.testbeds.netns.names import interface, namespace
from controller import ProgramBundle, SwitchSession
from controller.switches.model import SWITCH_IP, SWITCH_MAC
from controller.vocabulary import Link, Topology

EMBEDDED, BMV2 = "embedded", "bmv2"
"""Kinds of switches."""
BURST_BYTES = 65_536
"""Number of bytes that a host may send in a burst above its rate: one superframe."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and the lines to write to its standard input."""

    argv: tuple[str, ...]
    lines: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The command as people type it into a shell."""
        line = shlex.join(self.argv)
        return "\n".join((f"{line} <<EOF", *self.lines, "EOF")) if self.lines else line


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a testbed's switches, and the options for running it."""

    name: str = "exclusive"
    """A program of p4src, or the path of a file that ends in .p4."""
    lanes: int = 256
    seed: int = 0
    target: str = EMBEDDED
    """Kind of switch that runs the program: a key of `targets.TARGETS`."""
    pcap: str = ""
    """Folder for captures of all ports; empty: none."""

    @property
    def own(self) -> bool:
        """True for a user's program, which is not in p4src."""
        return self.name.endswith(".p4")


class SwitchTarget(ABC):
    """A kind of switch: its requirements, and the commands that make it part of a testbed.

    By default switches compile programs themselves, and their links need nothing more.
    """

    lanes: int
    """Default number of values per packet."""
    queue_packets: int | None = None
    """Number of packets that a port's queue can hold, if a worker's window may exceed it; None: a port's
    queue holds any window."""
    reports_ports: bool = True
    """Whether a switch reports which of its ports are down."""

    @abstractmethod
    def check(self, topology: Topology, program: Program) -> None:
        """Raise ProgramMismatch for an unsupported program, Unsupported for unsupported properties of links.

        Also raises CompileError for a faulty program, if switches of this kind compile it themselves.
        """

    @abstractmethod
    def check_here(self, topology: Topology, program: Program) -> None:
        """Raise MissingRequirement if tools, or kernel features that links need, are missing. Needs root.

        Raises PipelineError if the program cannot be built on this machine.
        """

    def compiling(self, program: Program, folder: Path) -> list[Command]:
        """Return the commands that compile the program into a folder, before any switch starts."""
        return []

    def compiled(self, program: Program, folder: Path) -> ProgramBundle | None:
        """Return the output of the commands of `compiling`; None: switches compile programs themselves."""
        return None

    @abstractmethod
    def argv(self, topology: Topology, switch: str, program: Program, socket: Path) -> list[str]:
        """Return the command that runs a switch in its namespace.

        Args:
            topology: The testbed's topology.
            switch: Name of the switch.
            program: The switches' program.
            socket: Path of the Unix socket of the switch's P4Runtime.
        """

    def link_commands(self, testbed: str, topology: Topology) -> Iterator[Command]:
        """Yield the commands for links of this kind of switch, in addition to the commands for any switch."""
        yield from ()

    def load(  # noqa: B027 - a switch that was started with its program has nothing to load
        self, program: Program, folder: Path, controllers: Mapping[str, SwitchSession]
    ) -> None:
        """Load the program into all switches that do not run it yet. Raises ControllerError."""


def bring_up(testbed: str, topology: Topology) -> list[Command]:
    """Return the commands that make namespaces, links, addresses and rates: everything but the switches."""
    nodes = (*topology.ports, *(host.name for host in topology.servers))
    return [
        *(Command(("ip", "netns", "add", namespace(testbed, node))) for node in nodes),
        Command(("ip", "-batch", "-"), tuple(_link_lines(testbed, topology))),
        *(_batch(testbed, switch, _switch_lines(topology, switch)) for switch in topology.ports),
        *(_batch(testbed, host.name, list(host_lines(topology, host.name))) for host in topology.servers),
        *rates(testbed, topology),
    ]


def host_lines(topology: Topology, host: str) -> Iterator[str]:
    """Yield the lines for ``ip -batch`` that set up a host's interfaces, address and neighbours."""
    own = interface(host)
    yield "link set lo up"
    yield f"link set {own} addrgenmode none"  # no IPv6 unless requested
    yield f"address add {topology.ip(host)}/{subnet(topology, host)} dev {own}"
    yield f"link set {own} up"
    yield from neighbour_lines(topology, host)


def subnet(topology: Topology, host: str) -> int:
    """Return the prefix length of a host's subnet."""
    return topology.server[host].prefix or 16


def host_commands(testbed: str, topology: Topology) -> Iterator[Command]:
    """Yield the commands of the hosts in the topology (`Server.commands`), each in its host's namespace."""
    for host in topology.servers:
        for command in host.commands:
            yield Command(("ip", "netns", "exec", namespace(testbed, host.name), "sh", "-c", command))


def neighbour_lines(topology: Topology, host: str) -> Iterator[str]:
    """Yield the lines for ``ip -batch`` that give a host the MACs of all other hosts and of the switches.

    A host with a subnet of its own uses ARP instead; its interface is renamed to ``eth0``.
    """
    own = interface(host)
    if topology.server[host].prefix:
        yield from (f"link set {own} down", f"link set {own} name eth0", "link set eth0 up")
        yield f"link property add dev eth0 altname {own}"
        return
    for other in topology.servers:
        if other.name != host:
            yield _neighbour(topology.ip(other.name), topology.mac(other.name), own)
    yield _neighbour(SWITCH_IP, SWITCH_MAC, own)


def rate_commands(dev: str, rate_bps: float) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of ``tc`` that limit an interface to a rate."""
    yield ("qdisc", "add", "dev", dev, "root", "handle", "1:", "htb", "default", "1")
    rate, burst = f"{rate_bps:.0f}bit", str(BURST_BYTES)
    shaped = ("htb", "rate", rate, "burst", burst, "cburst", burst, "quantum", str(BURST_BYTES))
    yield ("class", "add", "dev", dev, "parent", "1:", "classid", "1:1", *shaped)


def _link_lines(testbed: str, topology: Topology) -> Iterator[str]:
    ends = {switch: dict(ports) for switch, ports in topology.ports.items()}

    def end(node: str, link: Link) -> tuple[str, ...]:
        if node not in ends:
            return ("name", interface(node), "netns", namespace(testbed, node), "address", topology.mac(node))
        port = next(port for port, candidate in ends[node].items() if candidate is link)
        del ends[node][port]
        return ("name", interface(node, port), "netns", namespace(testbed, node))

    for link in topology.links:
        yield " ".join(("link add", *end(link.a, link), "type veth peer", *end(link.b, link)))


def _switch_lines(topology: Topology, switch: str) -> list[str]:
    interfaces = [interface(switch, port) for port in topology.ports[switch]]
    return [f"link set {each} {what}" for each in interfaces for what in ("addrgenmode none", "up")]


def rates(testbed: str, topology: Topology) -> Iterator[Command]:
    """Yield the commands that limit each host's interface to the rate of its link."""
    for host in topology.servers:
        (link,) = (each for each in topology.links if host.name in (each.a, each.b))
        if link.rate_bps:
            for arguments in rate_commands(interface(host.name), link.rate_bps):
                yield Command(("tc", "-n", namespace(testbed, host.name), *arguments))


def _neighbour(ip: str, mac: str, dev: str) -> str:
    return f"neighbour replace {ip} lladdr {mac} dev {dev} nud permanent"


def _batch(testbed: str, node: str, lines: Sequence[str]) -> Command:
    return Command(("ip", "-n", namespace(testbed, node), "-batch", "-"), tuple(lines))
