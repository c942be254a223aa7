"""The site where a service's jobs run: a testbed on this machine, or the machines of a cluster file."""

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
    """The switches, servers and fallback servers of a service."""

    @property
    def name(self) -> str:
        """The site's name, which a state stores; each site has another name."""

    @property
    def testbed(self) -> str:
        """The testbed whose hosts run workers; "": workers run on the machines of a cluster file."""

    @property
    def cluster(self) -> Topology:
        """Switches, servers and links, with servers' addresses if they are machines of a cluster file."""

    @property
    def machines(self) -> Topology:
        """The cluster with the addresses of all servers, for an engine that starts workers on them."""

    def check(self, engine: EngineChoice) -> None:
        """Raise ServiceError for an engine that cannot start workers at this site."""

    @contextlib.contextmanager
    def network(self, folder: Path) -> Iterator[Network]:
        """Yield the switches of the site; `folder` is for compiled programs.

        Raises ServiceError if switches run a program whose jobs do not share slots, or not the desired one.
        """

    def fallbacks(self, owner: str, lanes: int) -> FallbackServers:
        """Return the fallback servers of the site, which keep jobs for the service `owner`."""


def check_shares(program: ProgramBundle, remedy: str) -> None:
    """Raise ServiceError for a program whose jobs do not share slots; the message contains `remedy`."""
    if not program.offers().shared:
        raise ServiceError(
            f"the switches run the program {program.name!r}, whose jobs do not share slots: the service needs"
            f" a program whose jobs share slots ({remedy})"
        )


@dataclass(frozen=True, slots=True)
class TestbedSite:
    """A testbed of network namespaces on this machine, as a site.

    Attributes:
        bed: The testbed.
    """

    __test__ = False

    bed: netns.State

    @classmethod
    def find(cls, name: str | None) -> TestbedSite:
        """Return the site of the testbed `name`; None: the only testbed that is up.

        Raises NetnsError if there is no such testbed, or this user cannot use it.
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
        """Raise ServiceError for the engine ssh: the hosts of a testbed have no ssh server."""
        if engine.engine not in LOCAL_ENGINES:
            raise ServiceError(
                f"executor {engine.engine!r} starts workers on the machines of a cluster file (--cluster);"
                f" with a testbed want one of {', '.join(LOCAL_ENGINES)}"
            )

    @contextlib.contextmanager
    def network(self, folder: Path) -> Iterator[Network]:
        """Yield the switches of the testbed."""
        program = program_of(self.bed)
        check_shares(program, "ina topo up … --program shared")
        target = target_of(self.bed.program)
        with contextlib.ExitStack() as stack:
            watch = None if target.reports_ports else stack.enter_context(InterfaceWatch(self.bed))
            yield stack.enter_context(
                contextlib.closing(Network(self._connect, program, target.queue_packets, watch))
            )

    def fallbacks(self, owner: str, lanes: int) -> FallbackServers:
        """Return fallback servers that run on hosts of the testbed."""

        def connect(cluster: Topology, server: str, start: bool) -> TestbedFallback:
            return TestbedFallback(self.bed, server, lanes=lanes, owner=owner, start=start)

        return FallbackServers(connect)

    def _connect(self, name: str, address: str) -> SwitchSession:
        return connect(f"unix:{self.bed.socket(name)}", at_once=False)
