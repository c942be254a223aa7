"""The kinds of switches for testbeds, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from bmv2_topos.testbeds.netns.bmv2 import Bmv2Target
from bmv2_topos.testbeds.netns.commands import BMV2, EMBEDDED, Command, Program
from bmv2_topos.testbeds.netns.embedded import EmbeddedTarget
from controller import ProgramBundle, SwitchSession
from controller.vocabulary import Topology


class SwitchTarget(Protocol):
    """A kind of switch: its requirements, and the commands that make it part of a testbed."""

    lanes: int
    """Default number of values per packet."""
    queue_packets: int | None
    """Number of packets that a port's queue can hold, if a worker's window may exceed it; None: a port's
    queue holds any window."""
    reports_ports: bool
    """Whether a switch reports which of its ports are down."""

    def check(self, topology: Topology, program: Program) -> None:
        """Raise ProgramMismatch for an unsupported program, Unsupported for unsupported properties of links.

        Also raises CompileError for a faulty program, if switches of this kind compile it themselves.
        """

    def check_here(self, topology: Topology, program: Program) -> None:
        """Raise MissingRequirement if tools, or kernel features that links need, are missing. Needs root.

        Raises PipelineError if the program cannot be built on this machine.
        """

    def compiling(self, program: Program, folder: Path) -> list[Command]:
        """Return the commands that compile the program into a folder, before any switch starts."""

    def compiled(self, program: Program, folder: Path) -> ProgramBundle | None:
        """Return the output of the commands of `compiling`; None: switches compile programs themselves."""

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

    def load(self, program: Program, folder: Path, controllers: Mapping[str, SwitchSession]) -> None:
        """Load the program into all switches that do not run it yet. Raises ControllerError."""


TARGETS: Mapping[str, SwitchTarget] = {EMBEDDED: EmbeddedTarget(), BMV2: Bmv2Target()}


def target_of(program: Program) -> SwitchTarget:
    """Return the kind of switch that runs a program (`Program.target`)."""
    return TARGETS[program.target]
