"""BMv2 as a target: ``simple_switch_grpc``, the reference switch, with programs compiled by ``p4c``.

BMv2 reads frames from raw sockets, so every frame must arrive cut to the MTU and with its checksums. By
default the kernel leaves both to the network card; `offloads` disables this. The kernel implements rates and
queues (HTB) on BMv2's interfaces, and delay, loss and duplicates (netem) if the kernel has that module.
P4Runtime is at a Unix socket; every other port that BMv2 opens stays inside its namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from bmv2_topos.impairments import LEAST_DELAY_S
from bmv2_topos.testbeds.netns.commands import Command, Program, SwitchTarget, rate_commands
from bmv2_topos.testbeds.netns.errors import MissingRequirement, Unsupported
from bmv2_topos.testbeds.netns.names import interface, namespace
from bmv2_topos.testbeds.netns.namespaces import lacks_netem
from controller import ProgramBundle, SwitchSession
from controller.switches.programs import P4C, p4c_command, p4c_on_path, p4c_output, source_of
from controller.vocabulary import Link, Topology
from hostlib.launch import command_line

SWITCH = "simple_switch_grpc"
SOURCES = "https://github.com/p4lang"
PACKAGES = "https://download.opensuse.org/repositories/home:/p4lang"
"""Address of packages built by the p4lang project; no release of Debian or Ubuntu has these packages."""
SOCKET_PATH_BYTES = 104
"""Maximum length of the path of P4Runtime's Unix socket: paths of such sockets have at most 107 bytes, and
another socket of the switch has this one's path and ``.nn``."""
WIRE_PACKETS = 100_000
"""Number of delayed packets that netem may hold in addition to the packets in the queue; netem counts both
together."""


class Bmv2Target(SwitchTarget):
    """The target ``bmv2``."""

    lanes = 32
    queue_packets = 64
    reports_ports = False

    def check(self, topology: Topology, program: Program) -> None:
        """Raise ProgramMismatch for an unknown program, Unsupported for what BMv2 cannot do."""
        source_of(program.name, program.lanes)
        for switch in topology.switches:
            if switch.program or switch.runtime or switch.cpu_port:
                raise Unsupported(
                    f"switch {switch.name}: only the target embedded supports programs, entries and CPU "
                    "ports of single switches"
                )
        for link in topology.links:
            if link.reorder:
                raise Unsupported(
                    f"link {link.a} - {link.b}: reorder = {link.reorder:g}: neither BMv2 nor the kernel"
                    " reorders packets by chance; the target embedded does"
                )

    def check_here(self, topology: Topology, program: Program) -> None:
        """Raise MissingRequirement if a tool is missing, or if links need netem and the kernel lacks it."""
        if lacking := missing():
            raise MissingRequirement(f"the target bmv2 needs {lacking}; the target embedded needs neither")
        for link in topology.links:
            if (what := _netem(link)) and (why := lacks_netem()):
                raise MissingRequirement(
                    f"link {link.a} - {link.b}: {' '.join(what)} needs netem, because BMv2 cannot do it, and"
                    f" this kernel has no netem ({why}); the target embedded does not need netem"
                )

    def compiling(self, program: Program, folder: Path) -> list[Command]:
        """Return the command that compiles the program with p4c."""
        return [Command(tuple(p4c_command(*source_of(program.name, program.lanes), folder)))]

    def compiled(self, program: Program, folder: Path) -> ProgramBundle:
        """Return the output of p4c for the program."""
        return p4c_output(source_of(program.name, program.lanes)[0], folder)

    def argv(self, topology: Topology, switch: str, program: Program, socket: Path) -> list[str]:
        """Return the command ``simple_switch_grpc …``; see `SwitchTarget.argv`."""
        ports = {port: interface(switch, port) for port in topology.ports[switch]}
        return switch_argv(ports, socket, pcap=program.pcap)

    def link_commands(self, testbed: str, topology: Topology) -> Iterator[Command]:
        """Yield the commands that disable offloads, and set rates, queues, delay, loss and duplicates."""
        ends = [(host.name, 0) for host in topology.servers]
        ends += [(switch, port) for switch, ports in topology.ports.items() for port in ports]
        places = [f"{namespace(testbed, node)}/{interface(node, port)}" for node, port in ends]
        yield Command(tuple(command_line.module("bmv2_topos.testbeds.netns.offloads", *places)))
        for host in topology.servers:
            (link,) = (each for each in topology.links if host.name in (each.a, each.b))
            if _netem(link):  # at the host's end, which already has its rate limit
                yield _queue(testbed, host.name, 0, link)
        for switch, ports in topology.ports.items():
            for port, link in ports.items():
                yield from _shaping(testbed, switch, port, link)

    def load(self, program: Program, folder: Path, controllers: Mapping[str, SwitchSession]) -> None:
        """Load the compiled program into all switches. Raises ControllerError."""
        bundle = self.compiled(program, folder)
        for controller in controllers.values():
            controller.load(bundle)


def missing() -> str:
    """Return the names and sources of tools that are not on PATH, as text; empty if none is missing."""
    lacking = []
    if shutil.which(SWITCH) is None:
        lacking.append(f"{SWITCH} on PATH ({SOURCES}/behavioral-model, built with PI; package p4lang-bmv2)")
    if p4c_on_path() is None:
        lacking.append(f"{' or '.join(P4C)} on PATH ({SOURCES}/p4c; package p4lang-p4c)")
    return " and ".join(lacking) + (f" (packages: {PACKAGES})" if lacking else "")


def switch_argv(interfaces: Mapping[int, str], socket: Path, *, pcap: str = "") -> list[str]:
    """Return the command that runs a switch, without a program yet.

    Args:
        interfaces: The switch's interfaces by port number.
        socket: Path of P4Runtime's Unix socket.
        pcap: Folder for captures of all ports; empty: no captures.

    Raises Unsupported if the socket's path is too long: the switch would run without a socket.
    """
    if len(os.fsencode(socket)) > SOCKET_PATH_BYTES:
        raise Unsupported(
            f"{socket} is too long for the path of BMv2's socket, which can have {SOCKET_PATH_BYTES} bytes:"
            " give the testbed a shorter name, or set INA_TESTBEDS to a shorter folder"
        )
    ports = [word for number, name in interfaces.items() for word in ("-i", f"{number}@{name}")]
    own = ["--notifications-addr", f"ipc://{socket}.nn"] if "--notifications-addr" in help_text() else []
    seen = [f"--pcap={pcap}"] if pcap else []
    return [
        *(SWITCH, "--no-p4", "--device-id", "0", *ports, "-L", "off", *seen, *own),
        *("--", "--grpc-server-addr", f"unix:{socket}"),
    ]


@cache
def help_text() -> str:
    """Return the switch's help text, because builds differ in their options; empty without a switch."""
    try:
        return subprocess.run([SWITCH, "--help"], capture_output=True, text=True).stdout
    except OSError:
        return ""


def _shaping(testbed: str, switch: str, port: int, link: Link) -> Iterator[Command]:
    if link.rate_bps:
        for arguments in rate_commands(interface(switch, port), link.rate_bps):
            yield Command(("tc", "-n", namespace(testbed, switch), *arguments))
    if link.rate_bps or _netem(link):
        yield _queue(testbed, switch, port, link)


def _queue(testbed: str, node: str, port: int, link: Link) -> Command:
    """Return the ``tc`` command that makes the queue at an end of a link.

    If the end has a rate limit (HTB), the queue is a child of the rate limit.
    """
    place = ("parent", "1:1", "handle", "2:") if link.rate_bps else ("root", "handle", "2:")
    held = link.queue_packets + (WIRE_PACKETS if link.delay_s >= LEAST_DELAY_S else 0)
    kind = ("netem", "limit", str(held), *what) if (what := _netem(link)) else ("pfifo", "limit", str(held))
    at = ("tc", "-n", namespace(testbed, node), "qdisc", "add", "dev", interface(node, port))
    return Command((*at, *place, *kind))


def _netem(link: Link) -> tuple[str, ...]:
    """Return netem's arguments for packets that leave at an end of a link.

    >>> _netem(Link("h1", "s1", delay_s=0.001, loss=0.01))
    ('delay', '1000us', 'loss', '1%')
    """
    delay = ("delay", f"{link.delay_s * 1e6:.0f}us") if link.delay_s >= LEAST_DELAY_S else ()
    loss = ("loss", f"{link.loss * 100:g}%") if link.loss else ()
    duplicate = ("duplicate", f"{link.duplicate * 100:g}%") if link.duplicate else ()
    return (*delay, *loss, *duplicate)
