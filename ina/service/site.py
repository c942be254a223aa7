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
        """The site's unique name. A state stores it, and can only be used with this site."""

    @property
    def testbed(self) -> str:
        """Name of the testbed whose hosts run workers; "": workers run on the machines of a cluster file."""

    @property
    def cluster(self) -> Topology:
        """The switches, servers and links. Servers that are machines of a cluster file have addresses."""

    @property
    def machines(self) -> Topology:
        """The cluster with the addresses of all servers, for an engine that starts workers on them."""

    def check(self, engine: EngineChoice) -> None:
        """Raise ServiceError for an engine that cannot start workers at this site."""

    @contextlib.contextmanager
    def network(self, folder: Path) -> Iterator[Network]:
        """Yield the `Network` of the site's switches; compiled programs are written to `folder`.

        Raises ServiceError if the switches run a program whose jobs do not share slots, or another program
        than the site's.
        """

    def fallbacks(self, owner: str, lanes: int) -> FallbackServers:
        """Return access to the fallback servers of the site, on behalf of the service `owner`.

        `lanes` is the number of values in a packet.
        """


def check_shares(program: ProgramBundle, remedy: str) -> None:
    """Raise ServiceError if a program's jobs do not share slots. The message contains the option `remedy`."""
    if not program.offers().shared:
        raise ServiceError(
            f"the switches run the program {program.name!r}, whose jobs do not share slots: the service needs"
            f" a program whose jobs share slots ({remedy})"
        )


@dataclass(frozen=True, slots=True)
class TestbedSite:
    """A site that is a testbed of network namespaces on this machine.

    Attributes:
        bed: The state of the testbed.
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
        """The testbed's topology, with the addresses of its hosts."""
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
        """Yield the `Network` of the testbed's switches."""
        program = program_of(self.bed)
        check_shares(program, "ina topo up … --program shared")
        target = target_of(self.bed.program)
        with contextlib.ExitStack() as stack:
            watch = None if target.reports_ports else stack.enter_context(InterfaceWatch(self.bed))
            yield stack.enter_context(
                contextlib.closing(Network(self._connect, program, target.queue_packets, watch))
            )

    def fallbacks(self, owner: str, lanes: int) -> FallbackServers:
        """Return access to the fallback servers, which run on hosts of the testbed; see `Site.fallbacks`."""

        def connect(cluster: Topology, server: str, start: bool) -> TestbedFallback:
            return TestbedFallback(self.bed, server, lanes=lanes, owner=owner, start=start)

        return FallbackServers(connect)

    def _connect(self, name: str, address: str) -> SwitchSession:
        return connect(f"unix:{self.bed.socket(name)}", at_once=False)
