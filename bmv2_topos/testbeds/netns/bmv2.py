"""BMv2 as a target: ``simple_switch_grpc``, the reference switch, with programs compiled by ``p4c``.

It reads whole frames from interfaces, as raw sockets see them: so nothing may reach it that a network card
would have cut up or completed later (`offloads`). Rates and queues are the kernel's (HTB) on its interfaces.
P4Runtime is at a Unix socket; every other port that it may open stays inside its namespace.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from bmv2_topos.impairments import LEAST_DELAY_S
from bmv2_topos.testbeds.netns.commands import Command, Program, rate_commands
from bmv2_topos.testbeds.netns.errors import NotCarried, NotHere
from bmv2_topos.testbeds.netns.names import interface, namespace
from controller import Controller
from controller.switches.programs import p4c_command, p4c_output, source_of
from controller.vocabulary import Link, Topology
from hostlib import command_line

SWITCH = "simple_switch_grpc"
SOURCES = "https://github.com/p4lang"
P4C = ("p4c-bm2-ss", "p4c")


class Bmv2Target:
    """As of `targets.SwitchTarget`."""

    lanes = 32

    def check(self, topology: Topology, program: Program) -> None:
        """Raise NotHere without its tools; NotCarried; ProgramMismatch."""
        source_of(program.name, program.lanes)
        if lacking := missing():
            raise NotHere(f"the target bmv2 needs {lacking}; the target embedded needs neither")
        for link in topology.links:
            if why := not_carried(link):
                raise NotCarried(f"link {link.a} - {link.b}: {why}; the target embedded can")

    def compiling(self, program: Program, folder: Path) -> list[Command]:
        """Return the commands that compile its program."""
        return [Command(tuple(p4c_command(*source_of(program.name, program.lanes), folder)))]

    def argv(self, topology: Topology, switch: str, program: Program, socket: Path) -> list[str]:
        """Return ``simple_switch_grpc …``; see `SwitchTarget.argv`."""
        ports = {port: interface(switch, port) for port in topology.ports[switch]}
        return switch_argv(ports, socket, pcap=program.pcap)

    def link_commands(self, testbed: str, topology: Topology) -> Iterator[Command]:
        """Yield commands that disable superframes on its interfaces, and limit them to their rates."""
        ends = [(host.name, 0) for host in topology.servers]
        ends += [(switch, port) for switch, ports in topology.ports.items() for port in ports]
        places = [f"{namespace(testbed, node)}/{interface(node, port)}" for node, port in ends]
        yield Command(tuple(command_line.module("bmv2_topos.testbeds.netns.offloads", *places)))
        for switch, ports in topology.ports.items():
            for port, link in ports.items():
                if link.rate_bps:
                    yield from _shaping(testbed, switch, port, link)

    def load(self, program: Program, folder: Path, controllers: Mapping[str, Controller]) -> None:
        """Have all switches run what was compiled. Raises ControllerError."""
        bundle = p4c_output(source_of(program.name, program.lanes)[0], folder)
        for controller in controllers.values():
            controller.load(bundle)


def missing() -> str:
    """Name the tools that are not on PATH, and where they come from; nothing if all are."""
    lacking = []
    if shutil.which(SWITCH) is None:
        lacking.append(f"{SWITCH} on PATH ({SOURCES}/behavioral-model, built with PI; package p4lang-bmv2)")
    if not any(map(shutil.which, P4C)):
        lacking.append(f"{' or '.join(P4C)} on PATH ({SOURCES}/p4c; package p4lang-p4c)")
    return " and ".join(lacking)


def not_carried(link: Link) -> str | None:
    """Say what of a link BMv2 cannot do, None if it can do all.

    >>> not_carried(Link("h1", "s1", loss=0.01))
    'loss = 0.01: BMv2 loses nothing by itself, and this kernel has no netem'
    """
    if link.delay_s >= LEAST_DELAY_S:
        return f"delay_s = {link.delay_s:g}: BMv2 delays nothing by itself, and this kernel has no netem"
    faults = {"loss": "loses", "duplicate": "duplicates", "reorder": "reorders"}
    for key, does in faults.items():
        if value := getattr(link, key):
            return f"{key} = {value:g}: BMv2 {does} nothing by itself, and this kernel has no netem"
    return None


def switch_argv(interfaces: Mapping[int, str], socket: Path, *, pcap: str = "") -> list[str]:
    """Return the command that runs a switch without a program: ports by number, captures in a folder."""
    ports = [word for number, name in interfaces.items() for word in ("-i", f"{number}@{name}")]
    own = ["--notifications-addr", f"ipc://{socket}.nn"] if "--notifications-addr" in help_text() else []
    seen = [f"--pcap={pcap}"] if pcap else []
    return [
        *(SWITCH, "--no-p4", "--device-id", "0", *ports, "-L", "off", *seen, *own),
        *("--", "--grpc-server-addr", f"unix:{socket}"),
    ]


@cache
def help_text() -> str:
    """Return the switch's help: builds differ in what they have."""
    try:
        return subprocess.run([SWITCH, "--help"], capture_output=True, text=True).stdout
    except OSError:
        return ""


def _shaping(testbed: str, switch: str, port: int, link: Link) -> Iterator[Command]:
    inside = ("tc", "-n", namespace(testbed, switch))
    dev = interface(switch, port)
    for arguments in rate_commands(dev, link.rate_bps):
        yield Command((*inside, *arguments))
    queue = ("pfifo", "limit", str(link.queue_packets))
    yield Command((*inside, "qdisc", "add", "dev", dev, "parent", "1:1", "handle", "2:", *queue))
