"""Topologies of real processes: loopback, namespaces, Mininet, behind one interface."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import NotCarried, Program
from bmv2_topos.testbeds.netns.commands import EMBEDDED
from bmv2_topos.testbeds.netns.embedded import HEADERS
from controller.vocabulary import Topology
from ina.launch.spec import Captures, FabricSpec
from ina.switches.fabric import SwitchFabric, open_fabric
from ina.switches.testbed_fabric import opened

CAPTURE_BYTES = 10**9
OnStep = Callable[[str], None]


def _quiet(text: str) -> None:
    pass


class LiveRunner(Protocol):
    """Makes a topology of processes."""

    def check(self, topology: Topology, program: Program) -> None:
        """Raise LiveError: NotHere or NotCarried."""

    def opened(
        self, name: str, topology: Topology, program: Program, on_step: OnStep = _quiet
    ) -> AbstractContextManager[SwitchFabric]:
        """Make the topology for as long as the context lasts.

        Args:
            name: Name of the testbed.
            topology: Switches, hosts and links.
            program: The switches' program.
            on_step: Called with a text before each step.

        Raises LiveError and the errors of `open_fabric`.
        """


class Loopback:
    """Frames inside UDP on this machine: embedded switches, without root."""

    def check(self, topology: Topology, program: Program) -> None:
        """Raise NotCarried for switches that need interfaces."""
        if program.target != EMBEDDED:
            raise NotCarried(f"{program.target} needs network interfaces: loopback has none")

    def opened(
        self, name: str, topology: Topology, program: Program, on_step: OnStep = _quiet
    ) -> AbstractContextManager[SwitchFabric]:
        """Start its switches; see `LiveRunner.opened`."""
        self.check(topology, program)
        captures = Captures(Path(program.pcap), CAPTURE_BYTES, HEADERS) if program.pcap else None
        spec = FabricSpec(
            program.name, program.lanes, topology=topology, seed=program.seed, captures=captures
        )
        return open_fabric(spec, [])


class Testbed:
    """Namespaces, made by iproute2 alone or by Mininet: needs root."""

    __test__ = False  # pytest takes classes called Test* for tests

    def __init__(self, up: Callable[..., netns.State], find: Callable[[], None]) -> None:
        self._up, self._find = up, find

    def check(self, topology: Topology, program: Program) -> None:
        """Raise NotHere if this machine lacks a requirement, NotCarried."""
        netns.check_here()
        self._find()
        target = netns.TARGETS[program.target]
        target.check(topology, program)
        target.check_here(topology, program)

    @contextlib.contextmanager
    def opened(
        self, name: str, topology: Topology, program: Program, on_step: OnStep = _quiet
    ) -> Iterator[SwitchFabric]:
        """Start it, and stop it after the block; see `LiveRunner.opened`."""
        state = self._up(name, topology, program, on_step=on_step)
        try:
            with opened(state) as fabric:
                yield fabric
        finally:
            netns.down(name)


def live_runner(name: str) -> LiveRunner:
    """Return the runner of this name: loopback, netns or mininet."""
    return _RUNNERS[name]()


def _mininet() -> LiveRunner:
    from bmv2_topos.testbeds import mininet  # which looks for Mininet

    return Testbed(mininet.up, mininet.find)


_RUNNERS: Mapping[str, Callable[[], LiveRunner]] = {
    "loopback": Loopback,
    "netns": lambda: Testbed(netns.up, lambda: None),
    "mininet": _mininet,
}
