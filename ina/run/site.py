"""The site where a service's jobs run: a testbed on this machine, or the machines of a cluster file."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.commands import EMBEDDED, Program
from bmv2_topos.testbeds.netns.ports import InterfaceWatch
from bmv2_topos.testbeds.netns.targets import TARGETS, target_of
from bmv2_topos.testbeds.netns.testbed import run_step
from controller import ProgramBundle, SwitchInfo, SwitchSession, Tls, connect
from controller.errors import NoProgram, ProgramMismatch, SwitchError
from controller.vocabulary import BadSpec, Topology, documents, topology_of
from controller.vocabulary.graphs import check_pinned
from ina.errors import ProcessFailed, ServiceError
from ina.run.fallback.process import FallbackServers
from ina.run.fallback.remote import RemoteFallback, check_secret
from ina.run.fallback.testbed import TestbedFallback
from ina.run.launch.engines import LOCAL_ENGINES, REMOTE_ENGINES, EngineChoice
from ina.run.launch.machine_hosts import reached_at
from ina.run.network import ClusterNetwork
from ina.run.switches.programs import bundle
from ina.run.switches.testbeds import program_of


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
        """The testbed's name. A state stores its site's name, and can only be used with this site."""
        return self.bed.name

    testbed = name
    """Name of the testbed whose hosts run workers."""

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
    def network(self, folder: Path) -> Iterator[ClusterNetwork]:
        """Yield the network of the testbed's switches; `folder` is not used.

        Raises ServiceError if the switches run a program whose jobs do not share slots.
        """
        program = program_of(self.bed)
        check_shares(program, "ina topo up … --program shared")
        target = target_of(self.bed.program)
        with contextlib.ExitStack() as stack:
            watch = None if target.reports_ports else stack.enter_context(InterfaceWatch(self.bed))
            yield stack.enter_context(
                contextlib.closing(ClusterNetwork(self._connect, program, target.queue_packets, watch))
            )

    def fallbacks(self, owner: str, lanes: int) -> FallbackServers:
        """Return access to the fallback servers, on hosts of the testbed, on behalf of the service `owner`.

        `lanes` is the number of values in a packet.
        """

        def connect(cluster: Topology | None, server: str, start: bool) -> TestbedFallback:
            return TestbedFallback(self.bed, server, lanes=lanes, owner=owner, start=start)

        return FallbackServers(connect)

    def _connect(self, name: str, address: str) -> SwitchSession:
        return connect(f"unix:{self.bed.socket(name)}", at_once=False)


_log = logging.getLogger(__name__)


def read_cluster(path: Path) -> Topology:
    """Return the switches, servers and links of a cluster file.

    Raises BadSpec, with the line and the key, if the file lacks what a service needs: addresses of switches
    and servers, switch ports, and a machine for a fallback server.
    """
    document = documents.read(path)
    topology = topology_of(document)
    try:
        _check(topology)
    except BadSpec as error:
        raise document.error(_where(document, str(error)), str(error)) from error
    return replace(
        topology,
        servers=tuple(replace(each, fallback_port=each.serves_fallback_at) for each in topology.servers),
    )


def _check(topology: Topology) -> None:
    for switch in topology.switches:
        if not switch.p4runtime:
            raise BadSpec(f"switch {switch.name!r}: p4runtime is missing: want grpc://HOST:PORT or unix:PATH")
    check_pinned(topology)
    _ = topology.neighbours  # raises for two links between the same nodes
    if not topology.gpus:
        raise BadSpec("no server has GPUs: want at least one server with GPUs, for workers")
    if not any(server.serves_fallback_at for server in topology.servers):
        raise BadSpec(
            "no server has the role fallback, or a fallback_port: want one where 'ina fallback --serve' runs"
        )


def _where(document: documents.Document, text: str) -> documents.Where:
    """Return the path of the table in `document` that an error message names; () if it names none."""
    for key in ("server", "switch", "link"):
        tables = document.data.get(key, [])
        for number, each in enumerate(tables if isinstance(tables, list) else ()):
            if isinstance(each, dict) and text.startswith(
                (f"{key} {each.get('name')!r}:", f"link {each.get('a')}-{each.get('b')}:")
            ):
                return key, number
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSite:
    """The machines of a cluster file.

    Attributes:
        cluster: Switches, servers and links (`read_cluster`).
        program: The program to load on switches without a program.
        lanes: Number of values in a packet; None: the number that the running switches use, or the default.
        target: The kind of the switches, a key of `TARGETS`.
        tls: Settings for connections to switches; None: without TLS.
    """

    cluster: Topology
    program: str = "shared"
    lanes: int | None = None
    target: str = EMBEDDED
    tls: Tls | None = None

    name = "machines of a cluster file"
    """The site's name, one for all cluster files: a service accepts a changed file as its site."""
    testbed = ""
    """The empty string: workers are not on hosts of a testbed."""

    @property
    def machines(self) -> Topology:
        """The cluster, which already has the addresses of all servers."""
        return self.cluster

    def check(self, engine: EngineChoice) -> None:
        """Raise ServiceError for an engine that can only start workers on a testbed's hosts.

        Raises BadRun if the environment variable INA_TOKEN has no secret for the fallback servers.
        """
        if engine.engine not in REMOTE_ENGINES:
            raise ServiceError(
                f"executor {engine.engine!r} starts workers on the hosts of a testbed; with a cluster file"
                f" want one of {', '.join(REMOTE_ENGINES)} (ssh starts workers on this machine directly)"
            )
        check_secret(os.environ.get("INA_TOKEN", ""))

    @contextlib.contextmanager
    def network(self, folder: Path) -> Iterator[ClusterNetwork]:
        """Yield the network of the cluster's switches. Switches that do not answer join it once they do.

        Compiled programs are written to `folder`. Raises ServiceError if the switches run a program whose
        jobs do not share slots, or another program than the site's.
        """
        program, target = self._bundle(folder), TARGETS[self.target]
        check_shares(program, "--program shared")
        with contextlib.closing(ClusterNetwork(self._connect, program, target.queue_packets)) as network:
            yield network

    def fallbacks(self, owner: str, lanes: int) -> FallbackServers:
        """Return access to the fallback servers on machines of the cluster, run by 'ina fallback --serve'."""
        secret = os.environ.get("INA_TOKEN", "")

        def connect(cluster: Topology | None, server: str, start: bool) -> RemoteFallback:
            assert cluster is not None
            if server not in cluster.server:
                raise ProcessFailed(f"the cluster has no server {server!r} any more")
            address = reached_at(cluster, server), cluster.server[server].fallback_port
            return RemoteFallback(server, address, secret, lanes=lanes, owner=owner)

        return FallbackServers(connect)

    def _connect(self, name: str, address: str) -> SwitchSession:
        return connect(address.removeprefix("grpc://"), tls=self.tls, at_once=False)

    def _bundle(self, folder: Path) -> ProgramBundle:
        """Return the program, compiled for the switches.

        If switches already run a program, the result has their number of values in a packet.

        Raises ServiceError, and CompileError, StepFailed or ProgramMismatch if it cannot be compiled.
        """
        running = self._running()
        target = TARGETS[self.target]
        lanes = self.lanes or next((info.lanes for info in running.values()), target.lanes)
        for name, info in running.items():
            if info.lanes != lanes or not info.shared:
                raise ServiceError(
                    f"switch {name!r} runs {info.title} with {info.lanes} values in a packet; want a program"
                    f" whose jobs share slots, with {lanes} values, on all switches"
                )
        program = Program(self.program, lanes, target=self.target)
        target.check(self.cluster, program)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for command in target.compiling(program, folder):
            run_step(command)
        return target.compiled(program, folder) or bundle(self.program, lanes)

    def _running(self) -> dict[str, SwitchInfo]:
        """Return the `SwitchInfo` of each switch that answers and runs a program, by the switch's name.

        Raises ServiceError for a program that does not aggregate, and TLS errors as `controller.connect`.
        """
        found = {}
        with ThreadPoolExecutor(thread_name_prefix="look") as threads:
            looking = {
                each.name: threads.submit(self._info, each.p4runtime) for each in self.cluster.switches
            }
            for name, future in looking.items():
                try:
                    found[name] = future.result()
                except NoProgram:
                    continue
                except ProgramMismatch as error:
                    raise ServiceError(f"switch {name!r}: {error}") from error
                except SwitchError as error:
                    _log.warning("switch %s is left out until it answers: %s", name, error)
        return found

    def _info(self, address: str) -> SwitchInfo:
        with connect(address.removeprefix("grpc://"), tls=self.tls) as controller:
            return controller.info()


Site = TestbedSite | MachineSite
"""The switches, servers and fallback servers of a service."""
