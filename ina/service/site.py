"""The site of a service's jobs: a testbed of this machine, or the machines of a cluster file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.ports import InterfaceWatch
from bmv2_topos.testbeds.netns.targets import target_of
from controller import ProgramBundle, SwitchSession, connect
from controller.vocabulary import Topology
from ina.errors import ServiceError
from ina.fallback.servers import FallbackServers
from ina.fallback.testbed import TestbedFallback
from ina.launch.engines import LOCAL_ENGINES, EngineChoice
from ina.service.network import Network
from ina.switches.testbeds import program_of


class Site(Protocol):
    """Switches, servers and fallback servers for a service."""

    @property
    def name(self) -> str:
        """The site's name in a state; other sites have other names."""

    @property
    def testbed(self) -> str:
        """The testbed whose hosts run workers; "": machines do."""

    @property
    def cluster(self) -> Topology:
        """Switches, servers and links, with the addresses of servers if they are machines."""

    @property
    def machines(self) -> Topology:
        """The cluster with all addresses, for an engine on these servers."""

    def check(self, engine: EngineChoice) -> None:
        """Raise ServiceError for an engine that starts no workers here."""

    @contextlib.contextmanager
    def network(self, folder: Path) -> Iterator[Network]:
        """Yield its switches; `folder` is for compiled programs.

        Raises ServiceError: they run a program whose jobs do not share slots, or not the desired one.
        """

    def fallbacks(self, owner: str, lanes: int) -> FallbackServers:
        """Return its fallback servers, which keep the jobs of `owner`."""


def check_shares(program: ProgramBundle, remedy: str) -> None:
    """Raise ServiceError, with a remedy, for a program whose jobs do not share slots."""
    if not program.offers().shared:
        raise ServiceError(
            f"the switches run the program {program.name!r}, whose jobs do not share slots: the service needs"
            f" one whose jobs do ({remedy})"
        )


@dataclass(frozen=True, slots=True)
class TestbedSite:
    """A testbed of namespaces.

    Attributes:
        bed: The testbed.
    """

    __test__ = False

    bed: netns.State

    @classmethod
    def find(cls, name: str | None) -> TestbedSite:
        """Return the testbed of this name; None: the only one that is up.

        Raises NetnsError: there is no such testbed, or this user cannot use it.
        """
        netns.check_here()
        return cls(netns.find(name))

    @property
    def name(self) -> str:
        """The testbed's name."""
        return self.bed.name

    @property
    def testbed(self) -> str:
        """The testbed's name."""
        return self.bed.name

    @property
    def cluster(self) -> Topology:
        """The testbed's topology."""
        return self.bed.topology

    @property
    def machines(self) -> Topology:
        """The testbed's topology with the addresses of its hosts."""
        return netns.cluster_topology(self.bed)

    def check(self, engine: EngineChoice) -> None:
        """Raise ServiceError for ssh: the hosts of a testbed have no ssh server."""
        if engine.engine not in LOCAL_ENGINES:
            raise ServiceError(
                f"executor {engine.engine!r} starts workers on the machines of a cluster file (--cluster);"
                f" with a testbed want one of {', '.join(LOCAL_ENGINES)}"
            )

    @contextlib.contextmanager
    def network(self, folder: Path) -> Iterator[Network]:
        """Yield its switches."""
        program = program_of(self.bed)
        check_shares(program, "ina topo up … --program shared")
        target = target_of(self.bed.program)
        with contextlib.ExitStack() as stack:
            watch = None if target.reports_ports else stack.enter_context(InterfaceWatch(self.bed))
            yield stack.enter_context(
                contextlib.closing(Network(self._connect, program, target.queue_packets, watch))
            )

    def fallbacks(self, owner: str, lanes: int) -> FallbackServers:
        """Return fallback servers that run on its hosts."""

        def connect(cluster: Topology, server: str, start: bool) -> TestbedFallback:
            return TestbedFallback(self.bed, server, lanes=lanes, owner=owner, start=start)

        return FallbackServers(connect)

    def _connect(self, name: str, address: str) -> SwitchSession:
        return connect(f"unix:{self.bed.socket(name)}", at_once=False)
