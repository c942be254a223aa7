"""Switches and jobs as a runner has them: the daemon has admitted the jobs, a runner starts workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from bmv2_topos.testbeds import netns
from controller import Member
from controller.switches.model import SwitchInfo
from controller.switches.tree import TreeAdmission
from controller.vocabulary import Topology
from hostlib.launcher import Output, Rendezvous
from ina.runtime.agents import Agents, RemoteWorkers
from ina.runtime.cluster_fabric import ClusterFabric, address_towards, reached_at
from ina.runtime.fabric import RunningWorkers, SwitchFabric
from ina.runtime.spec import ClusterSpec, FabricSpec, LaunchSpec
from ina.runtime.testbed_fabric import NamespaceFabric

StartAgents = Callable[[Mapping[str, str]], AbstractContextManager[Agents]]
"""Starts an agent on each of these machines, given with their addresses."""


class Given(SwitchFabric):
    """What is the same wherever the workers run."""

    def give(self, jobs: Mapping[str, TreeAdmission], offers: SwitchInfo, *, switch: bool) -> None:
        """Take in the jobs, by name, and what the switches' program offers.

        With `switch` False all workers are on one server, and need no switch.
        """
        self.given = jobs
        self._offered = offers
        self._uses_switch = switch

    def transport(self, switch: str, member: Member) -> Mapping[str, Any]:
        """Return a worker's `hostlib.TransportConfig`."""
        if not self._uses_switch:
            return {"kind": "none", "local": "", "switch": ""}
        return super().transport(switch, member)

    @property
    def lease_s(self) -> None:
        """Return None: whoever admitted the jobs sees to that."""
        return None

    @property
    def offers(self) -> SwitchInfo:
        """What the program of the switches offers to jobs, as far as workers have to know."""
        return self._offered

    @property
    def lost(self) -> Mapping[str, str]:
        """Machines that are gone with their workers, and why."""
        return {}

    def counters(self, tree: TreeAdmission) -> dict[str, dict[str, int]]:
        """Return nothing: whoever controls the switches can ask them."""
        return {}

    def ended(self) -> None:
        """Return None: a switch that has ended may come back."""

    def switch_ended(self) -> None:
        """Return None, for the same reason."""


class GivenHosts(Given, NamespaceFabric):
    """Workers are processes of this machine, on the hosts of a testbed."""

    def __init__(self, testbed: str) -> None:
        super().__init__(netns.find(testbed), {})


class GivenMachines(Given, ClusterFabric):
    """Workers of one job are on machines, each with an agent that somebody else starts there."""

    def __init__(self, topology: Topology, machines: Sequence[str], start: StartAgents) -> None:
        """Have `start` start agents on `machines`, once the job needs them."""
        cluster = ClusterSpec(topology=topology)
        super().__init__(FabricSpec(topology=topology), cluster, topology, {}, server=None, agents=None)
        self._machines = {name: reached_at(topology, name) for name in machines}
        self._start = start
        self._workers: RemoteWorkers | None = None

    @property
    def lost(self) -> Mapping[str, str]:
        """Machines that are gone with their workers, and why."""
        return self._workers.lost if self._workers else {}

    @property
    def group_host(self) -> str:
        """Address of this machine at which workers take their turns, and tell how far they are."""
        return address_towards(next(iter(self._machines.values())))

    @contextlib.contextmanager
    def torch_store(self, switch: str, member: Member) -> Iterator[tuple[str, int]]:
        """Have agents on all machines, of which one keeps an address for the store of torch."""
        with self._start(self._machines) as self._agents:
            self._agents.ready()
            with super().torch_store(switch, member) as store:
                yield store

    def start_workers(
        self,
        spec: LaunchSpec,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        rendezvous: Rendezvous,
        on_output: Output,
    ) -> RunningWorkers:
        """Start the workers of a job on their machines; see `SwitchFabric.start_workers`."""
        found = super().start_workers(spec, command, environments, rendezvous, on_output)
        assert isinstance(found, RemoteWorkers)
        self._workers = found
        return found
