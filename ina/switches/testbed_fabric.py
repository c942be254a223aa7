"""Jobs on a testbed of network namespaces: workers on its hosts, over the kernel's own UDP."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bmv2_topos.testbeds.netns.errors import NoTestbed
from bmv2_topos.testbeds.netns.store import State
from bmv2_topos.testbeds.netns.targets import target_of
from bmv2_topos.testbeds.netns.testbed import controllers
from controller import Fleet, ProgramBundle
from controller.errors import Unreachable
from controller.vocabulary.topology import spread
from ina.fallback.testbed import TestbedFallback
from ina.launch.spec import FabricSpec
from ina.launch.testbed_hosts import TestbedHosts
from ina.switches.fabric import SwitchFabric
from ina.switches.programs import bundle

LEASE_S = 60.0
"""Time for which a job whose run was killed stays on the switches."""


@dataclass(frozen=True, slots=True)
class TestbedSwitch:
    """A switch of a testbed, which is a process of this machine."""

    __test__ = False  # pytest takes classes called Test* for tests

    name: str
    process: int

    def ended(self) -> str | None:
        """Return that it has ended, or None."""
        return None if _runs(self.process) else f"switch {self.name} (process {self.process}) has ended"


@contextlib.contextmanager
def hosts_for(state: State, workers: int) -> Iterator[list[str]]:
    """Reserve a host for each rank, evenly over the racks, also from other processes. Raises BadSpec."""
    with contextlib.ExitStack() as stack:
        with (state.folder / ".hosts.lock").open("w") as choosing:
            fcntl.flock(choosing, fcntl.LOCK_EX)  # nobody else looks while this holds hosts to let go
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
    """Return the program of a testbed, as its switches take it. Raises as `programs.bundle`."""
    program = state.program
    return target_of(program).compiled(program, state.folder) or bundle(program.name, program.lanes)


@contextlib.contextmanager
def opened(state: State) -> Iterator[SwitchFabric]:
    """Use a running testbed for jobs. Raises NoTestbed if a switch has ended; ControllerError."""
    _check_switches(state)
    with contextlib.ExitStack() as connections:
        try:
            at = connections.enter_context(controllers(state))
        except Unreachable:
            _check_switches(state)  # one that was killed may have taken until now to end
            raise
        fabric = SwitchFabric(
            spec=FabricSpec(state.program.name, state.program.lanes, topology=state.topology),
            topology=state.topology,
            fleet=Fleet(at),
            hosts=TestbedHosts(state),
            processes={name: TestbedSwitch(name, process) for name, process in state.switches.items()},
            lease_s=LEASE_S,
            queue_packets=target_of(state.program).queue_packets,
            fallback_at=lambda port: TestbedFallback(state, fabric.server_host, lanes=fabric.offers.lanes),
            hosts_for=lambda workers: hosts_for(state, workers),
        )
        try:
            yield fabric
        finally:
            fabric.close()


def _check_switches(state: State) -> None:
    for switch, process in state.switches.items():
        if why := TestbedSwitch(switch, process).ended():
            raise NoTestbed(f"testbed {state.name!r}: {why}; take it down: ina topo down {state.name}")


def _runs(process: int) -> bool:
    try:
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return after_name.split()[0] not in "ZX"  # one that nobody has waited for yet
