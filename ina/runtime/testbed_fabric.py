"""Jobs on a testbed of network namespaces: workers on its hosts, over the kernel's own UDP."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bmv2_topos.testbeds.netns.errors import NoTestbed
from bmv2_topos.testbeds.netns.store import State
from bmv2_topos.testbeds.netns.targets import target_of
from bmv2_topos.testbeds.netns.testbed import controllers
from controller import Fleet, ProgramBundle, SwitchSession
from controller.errors import Unreachable
from controller.switches.model import Uplink
from controller.vocabulary.places import spread
from ina.runtime.fabric import FALLBACK, FoundSwitch, SwitchFabric
from ina.runtime.fallback_process import Fallback
from ina.runtime.programs import bundle
from ina.runtime.spec import FabricSpec
from ina.runtime.testbed_fallback import TestbedFallback
from ina.runtime.testbed_hosts import TestbedHosts

T = TypeVar("T")

LEASE_S = 60.0
"""Time for which a job whose run was killed stays on the switches."""


@dataclass(frozen=True, slots=True)
class RunningSwitch(FoundSwitch):
    """A switch of a testbed, which is a process of this machine."""

    name: str
    process: int

    def ended(self) -> str | None:
        """Return that it has ended, or None."""
        return None if _runs(self.process) else f"switch {self.name} (process {self.process}) has ended"


class NamespaceFabric(SwitchFabric):
    """The switches of a running testbed."""

    def __init__(self, state: State, at: Mapping[str, SwitchSession]) -> None:
        spec = FabricSpec(state.program.name, state.program.lanes, topology=state.topology)
        switches = {
            name: RunningSwitch(f"unix:{state.socket(name)}", name, state.switches[name])
            for name in state.topology.ports
        }
        super().__init__(spec, state.topology, switches, Fleet(at), TestbedHosts(state))
        self._state = state
        self._topology = state.topology

    @property
    def lease_s(self) -> float | None:
        """Time for which a job stays admitted if nobody renews its lease."""
        return LEASE_S

    @property
    def queue_packets(self) -> int | None:
        """Packets that its kind of switch holds at a port; None: as many as any window needs."""
        return target_of(self._state.program).queue_packets

    def fallback_uplink(self) -> Uplink:
        """Return the uplink from the root to the fallback server."""
        host = self.server_host
        port = self._topology.port_to(self.root, host)
        return replace(FALLBACK, port=port, mac=self._topology.mac(host), ip=self._topology.ip(host))

    @contextlib.contextmanager
    def reserved(self, workers: int) -> Iterator[list[str]]:
        """Reserve a host for each rank, evenly over the racks, also from other processes.

        Raises BadSpec.
        """
        with contextlib.ExitStack() as stack:
            with (self._state.folder / ".hosts.lock").open("w") as choosing:
                fcntl.flock(choosing, fcntl.LOCK_EX)  # nobody else looks while this holds hosts to let go
                chosen = self._choose(workers, stack)
            yield chosen

    def _choose(self, workers: int, stack: contextlib.ExitStack) -> list[str]:
        free = {}
        for host in self._topology.servers_for("worker"):
            handle = stack.enter_context((self._state.folder / f".{host}.taken").open("w"))
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free[host] = handle
        taken = set(self._topology.servers_for("worker")) - set(free)
        chosen = list(spread(self._topology, workers, taken))
        for host, handle in free.items():
            if host not in chosen:
                fcntl.flock(handle, fcntl.LOCK_UN)
        return chosen

    def _fallback_process(self, port: int) -> Fallback:
        return TestbedFallback(self._state, self.server_host, lanes=self.offers.lanes)


def program_of(state: State) -> ProgramBundle:
    """Return the program of a testbed, as its switches take it. Raises as `programs.bundle`."""
    program = state.program
    return target_of(program).compiled(program, state.folder) or bundle(program.name, program.lanes)


@contextlib.contextmanager
def opened(state: State) -> Iterator[NamespaceFabric]:
    """Use a running testbed for jobs. Raises NoTestbed if a switch has ended; ControllerError."""
    _check_switches(state)
    with contextlib.ExitStack() as connections:
        try:
            at = connections.enter_context(controllers(state))
        except Unreachable:
            _check_switches(state)  # one that was killed may have taken until now to end
            raise
        fabric = NamespaceFabric(state, at)
        try:
            yield fabric
        finally:
            fabric.close()


def _check_switches(state: State) -> None:
    for switch, process in state.switches.items():
        if why := RunningSwitch("", switch, process).ended():
            raise NoTestbed(f"testbed {state.name!r}: {why}; take it down: ina topo down {state.name}")


def _runs(process: int) -> bool:
    try:
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return after_name.split()[0] not in "ZX"  # one that nobody has waited for yet
