"""Runners that make a topology of real processes (loopback, namespaces, Mininet), and jobs on testbeds.

On testbeds of namespaces, workers run in the hosts' namespaces, and send through the kernel's UDP.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import NoTestbed, Program, State, Unsupported
from bmv2_topos.testbeds.netns.commands import EMBEDDED
from bmv2_topos.testbeds.netns.embedded import HEADERS
from bmv2_topos.testbeds.netns.targets import target_of
from bmv2_topos.testbeds.netns.testbed import controllers
from controller import Fleet, ProgramBundle
from controller.errors import Unreachable
from controller.switches.leases import is_running
from controller.vocabulary.topology import Topology, spread
from ina.run.fallback.process import FallbackServers
from ina.run.fallback.testbed import TestbedFallback
from ina.run.launch.spec import Captures, FabricSpec
from ina.run.launch.testbed_hosts import TestbedHosts
from ina.run.switches.fabric import SwitchFabric, open_fabric
from ina.run.switches.programs import bundle

CAPTURE_BYTES = 10**9


@dataclass(frozen=True, slots=True)
class TestbedSwitch:
    """A switch of a testbed of namespaces: a process of this machine, started by another command."""

    __test__ = False  # pytest takes classes called Test* for tests

    name: str
    pid: int

    def ended(self) -> str | None:
        """Return a message that the process has ended; None while it runs."""
        return None if is_running(self.pid) else f"switch {self.name} (process {self.pid}) has ended"


@contextlib.contextmanager
def hosts_for(state: State, workers: int) -> Iterator[list[str]]:
    """Reserve a testbed's host for each worker inside the context, spread evenly over the racks.

    Other processes cannot reserve these hosts meanwhile. Yields the names of the hosts. Raises BadSpec if too
    few hosts are free.
    """
    with contextlib.ExitStack() as stack:
        with (state.folder / ".hosts.lock").open("w") as choosing:
            fcntl.flock(
                choosing, fcntl.LOCK_EX
            )  # other processes wait: this process briefly holds all free hosts
            chosen = _choose(state, workers, stack)
        yield chosen


def _choose(state: State, workers: int, stack: contextlib.ExitStack) -> list[str]:
    free = {}
    for host in state.topology.servers_for("worker"):
        handle = stack.enter_context((state.folder / f".{host}.taken").open("w"))
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free[host] = handle
    taken = set(state.topology.servers_for("worker")) - set(free)
    chosen = list(spread(state.topology, workers, taken))
    for host, handle in free.items():
        if host not in chosen:
            fcntl.flock(handle, fcntl.LOCK_UN)
    return chosen


def program_of(state: State) -> ProgramBundle:
    """Return the program of a testbed, compiled for its kind of switches.

    Raises the errors of `programs.bundle`.
    """
    program = state.program
    return target_of(program).compiled(program, state.folder) or bundle(program.name, program.lanes)


@contextlib.contextmanager
def opened(state: State) -> Iterator[SwitchFabric]:
    """Connect to the switches of a running testbed, for jobs on its hosts.

    Raises NoTestbed if a switch has ended; ControllerError.
    """
    _check_switches(state)
    with contextlib.ExitStack() as connections:
        try:
            at = connections.enter_context(controllers(state))
        except Unreachable:
            _check_switches(state)  # a killed switch may have taken until now to end
            raise
        fabric = SwitchFabric(
            spec=FabricSpec(state.program.name, state.program.lanes, topology=state.topology),
            topology=state.topology,
            fleet=Fleet(at),
            hosts=TestbedHosts(state),
            processes={name: TestbedSwitch(name, process) for name, process in state.switches.items()},
            queue_packets=target_of(state.program).queue_packets,
            fallbacks=FallbackServers(
                lambda *_: TestbedFallback(state, fabric.server_host, lanes=fabric.offers.lanes)
            ),
            hosts_for=lambda workers: hosts_for(state, workers),
        )
        connections.callback(fabric.close)
        yield fabric


def _check_switches(state: State) -> None:
    for switch, process in state.switches.items():
        if why := TestbedSwitch(switch, process).ended():
            raise NoTestbed(f"testbed {state.name!r}: {why}; take it down: ina topo down {state.name}")


# ---------------------------------------------------------------------- runners

OnStep = Callable[[str], None]


class Loopback:
    """Embedded switches as processes of this user, with frames in UDP datagrams over loopback."""

    def check(self, topology: Topology, program: Program) -> None:
        """Raise Unsupported for BMv2, which needs network interfaces."""
        if program.target != EMBEDDED:
            raise Unsupported(f"{program.target} needs network interfaces: loopback has none")

    def opened(
        self, name: str, topology: Topology, program: Program, on_step: OnStep = lambda text: None
    ) -> AbstractContextManager[SwitchFabric]:
        """Start the switches of a topology; stop them when the context ends.

        Args:
            name: Name of the testbed.
            topology: Switches, hosts and links.
            program: The switches' program.
            on_step: Called before each step, with a description of the step.

        Raises the errors of `open_fabric`.
        """
        self.check(topology, program)
        captures = Captures(Path(program.pcap), CAPTURE_BYTES, HEADERS) if program.pcap else None
        spec = FabricSpec(
            program.name, program.lanes, topology=topology, seed=program.seed, captures=captures
        )
        return open_fabric(spec, [])


class Testbed:
    """Hosts and switches in network namespaces, made by iproute2 alone or by Mininet; needs root."""

    __test__ = False  # pytest takes classes called Test* for tests

    def __init__(self, up: Callable[..., State], find: Callable[[], None]) -> None:
        self._up, self._find = up, find

    def check(self, topology: Topology, program: Program) -> None:
        """Raise MissingRequirement if this machine lacks a requirement.

        Raises Unsupported if the switches of `program.target` do not support the topology or the program.
        """
        netns.check_here()
        self._find()
        target = netns.TARGETS[program.target]
        target.check(topology, program)
        target.check_here(topology, program)

    @contextlib.contextmanager
    def opened(
        self, name: str, topology: Topology, program: Program, on_step: OnStep = lambda text: None
    ) -> Iterator[SwitchFabric]:
        """Start a testbed, and stop it when the context ends; see `Loopback.opened`. Raises NetnsError."""
        state = self._up(name, topology, program, on_step=on_step)
        try:
            with opened(state) as fabric:
                yield fabric
        finally:
            netns.down(name)


LiveRunner = Loopback | Testbed
"""Makes a topology of real switch and host processes."""


def live_runner(name: str) -> LiveRunner:
    """Return the runner of this name: loopback, netns or mininet."""
    return _RUNNERS[name]()


def _mininet() -> LiveRunner:
    from bmv2_topos.testbeds import mininet  # imported here: the module looks for Mininet

    return Testbed(mininet.up, mininet.find)


_RUNNERS: Mapping[str, Callable[[], LiveRunner]] = {
    "loopback": Loopback,
    "netns": lambda: Testbed(netns.up, lambda: None),
    "mininet": _mininet,
}
