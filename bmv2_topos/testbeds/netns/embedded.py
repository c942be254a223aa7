"""The embedded switch as a target: ``ina switch``, which implements rates, delays and losses itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import softswitch
from bmv2_topos.impairments import link_impairments, outgoing
from bmv2_topos.testbeds.netns.commands import Program, SwitchTarget
from bmv2_topos.testbeds.netns.names import interface
from controller.switches.programs import source_of
from controller.vocabulary import Link, Topology
from hostlib.launch import command_line
from p4src.programs import is_file

HEADERS = 70
"""Number of bytes of a frame before its lanes."""


class EmbeddedTarget(SwitchTarget):
    """The target ``embedded``: the first switch that runs a program compiles it for all switches.

    A switch accepts superframes, and limits its ports to their rates itself.
    """

    lanes = 256

    def check(self, topology: Topology, program: Program) -> None:
        """Raise ProgramMismatch for an unknown program or wrong lanes, CompileError for a faulty program."""
        source_of(program.name, program.lanes)
        for name, text in _own(topology, program):
            softswitch.p4info_once(text, name=name)

    def check_here(self, topology: Topology, program: Program) -> None:
        """Raise PipelineError if a user's program cannot be built, before each switch reports the error."""
        for name, text in _own(topology, program):
            softswitch.load(softswitch.compile_once(text, name=name), backend="compiled")

    def argv(self, topology: Topology, switch: str, program: Program, socket: Path) -> list[str]:
        """Return the command ``ina switch …``; see `SwitchTarget.argv`."""
        return command_line.ina("switch", *switch_options(topology, switch, program, socket))


def _own(topology: Topology, program: Program) -> Iterator[tuple[str, str]]:
    """Yield the name and the preprocessed text of each user's program."""
    for own in {program.name, *(each.program for each in topology.switches if each.program)}:
        if is_file(own):
            source, defines = source_of(own, program.lanes)
            yield source.stem, softswitch.preprocess_once(source, defines=defines)


def switch_options(topology: Topology, switch: str, program: Program, socket: Path) -> list[str]:
    """Return the options of ``ina switch`` for a switch whose interfaces are in its namespace.

    The switch itself limits its ports to their rates, so that programs see the queue. It also delays and
    loses packets, with its own random numbers. Hosts limit their own interfaces. Captures keep headers only,
    which is all that ``ina trace`` needs.

    Args:
        topology: The testbed's topology.
        switch: Name of the switch.
        program: The switches' program.
        socket: Path of the Unix socket of the switch's P4Runtime.
    """
    own = topology.switch[switch]
    options = ["--program", own.program or program.name, "--lanes", str(program.lanes)]
    options += ["--p4runtime", f"unix:{socket}"]
    options += [f"--port={port}=veth:{interface(switch, port)}" for port in topology.ports[switch]]
    options += [f"--port={own.cpu_port}=cpu"] if own.cpu_port else []
    options += [word for file in own.runtime for word in ("--runtime", file)]
    options += ["--seed", str(program.seed + list(topology.ports).index(switch))]
    for port, link in topology.ports[switch].items():
        if impairments := _impairments(topology, switch, link):
            options += ["--impair", f"{port}:{impairments}"]
    if program.pcap:
        options += ["--pcap", program.pcap, "--pcap-name", switch, "--pcap-snap", str(HEADERS)]
    return options


def _impairments(topology: Topology, switch: str, link: Link) -> str:
    towards_host = link.other(switch) not in topology.ports
    outward = outgoing(link_impairments(link))
    inward = link_impairments(link, rate=False)
    if (
        not towards_host or not inward
    ):  # a link between switches has two ports: each impairs the packets that leave by it
        return outward if link_impairments(link) else ""
    return ",".join([*(f"rx.{part}" for part in inward.split(",")), outward])
